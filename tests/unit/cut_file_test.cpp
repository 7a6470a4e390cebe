// SPDX-License-Identifier: Apache-2.0
// Files that are cut short while they are mapped: reading them as memory would end the process.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <system_error>
#include <vector>

#include "models/files/safetensors.h"
#include "runtime/base/error.h"
#include "runtime/base/mapped_bytes.h"
#include "runtime/graph/packed.h"
#include "runtime/graph/shard.h"
#include "tests/unit/text.h"

namespace {

namespace fs = std::filesystem;
using vkf::DType;
using vkf::Error;
using vkf::HostTensor;
using vkf::MappedFile;
using vkf::WeightType;
using vkf::test::contains;

struct CutFolder {
    fs::path path = fs::temp_directory_path() / ("vkformer-cut-" + std::to_string(std::random_device{}()));
    CutFolder() { fs::create_directories(path); }
    ~CutFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

std::string error_of_cut(const std::function<void()>& f) {
    try {
        f();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("cut file: a text of more bytes than are read is refused before any is") {
    const CutFolder folder;
    std::ofstream(folder.path / "x", std::ios::binary) << "0123456789";
    CHECK(vkf::file_text(folder.path / "x", 10) == "0123456789");
    CHECK(contains(error_of_cut([&] { vkf::file_text(folder.path / "x", 9); }),
                   "has 10 bytes, of which at most 9 are read"));
    fs::resize_file(folder.path / "x", std::uint64_t{1} << 40);  // of holes
    CHECK(contains(error_of_cut([&] { vkf::file_text(folder.path / "x"); }), "has 1099511627776 bytes"));
}

TEST_CASE("cut file: its bytes come from the file, whole or in parts") {
    const CutFolder folder;
    std::string text(1'000'003, 'a');
    std::mt19937 random(1);
    for (char& c : text) {
        c = static_cast<char>(random());
    }
    std::ofstream(folder.path / "x", std::ios::binary) << text;
    const MappedFile file(folder.path / "x");
    std::string copy(text.size(), 0);
    vkf::copy_bytes(file.bytes(), reinterpret_cast<std::byte*>(copy.data()));
    CHECK(copy == text);
    for (const std::size_t multiple : {1u, 4u, 24u}) {
        std::string joined;
        vkf::in_parts(file.bytes().subspan(1), multiple, [&](std::span<const std::byte> part) {
            CHECK((part.size() % multiple == 0 || joined.size() + part.size() + 1 == text.size()));
            joined.append(reinterpret_cast<const char*>(part.data()), part.size());
        });
        CHECK(joined == text.substr(1));
    }
    CHECK(vkf::file_text(folder.path / "x") == text);
}

#ifndef _WIN32

TEST_CASE("cut file: whatever reads a tensor of a file that was cut short throws, naming it") {
    const CutFolder folder;
    const fs::path path = folder.path / "model.safetensors";
    const std::vector<float> numbers(1 << 18, 0.5f);
    const std::vector<std::uint16_t> halves(1 << 18, 0x3800);
    const std::vector<HostTensor> tensors{
        {"a", DType::f32, {512, 512}, std::as_bytes(std::span(numbers))},
        {"b", DType::f16, {512, 512}, std::as_bytes(std::span(halves))},
    };
    vkf::save_safetensors(path, tensors);
    const vkf::Safetensors file(path);
    fs::resize_file(path, 8192);
    const std::string said = path.filename().string() + ": was cut short while it was in use";
    for (const char* name : {"a", "b"}) {
        CAPTURE(name);
        const HostTensor& t = file.at(name);
        std::vector<float> out(1 << 18);
        CHECK(contains(error_of_cut([&] { vkf::widen(t, 0, out); }), said));
        for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
            std::vector<std::uint32_t> words(512 * vkf::packed_row_words(type, 512));
            CHECK(contains(error_of_cut([&] { vkf::pack_rows(t, type, 0, words); }), said));
            if (!vkf::same_format(t.dtype, type)) {
                CHECK(contains(error_of_cut([&] { vkf::require_packable(t, type, 0, 512); }), said));
            }
        }
        CHECK(contains(error_of_cut([&] { vkf::save_safetensors(folder.path / "again", {&t, 1}); }), said));
        CHECK(!fs::exists(folder.path / "again"));
    }
    const vkf::Safetensors cut_before = [&] {
        vkf::save_safetensors(path, tensors);
        return vkf::Safetensors(path);
    }();
    CHECK(cut_before.tensors().size() == 2);
    CHECK(error_of_cut([&] { vkf::file_text(folder.path); }) != "");
}

TEST_CASE("cut file: a rank reads the bytes of its part of a tensor, and no others") {
    constexpr std::int64_t kRows = 64, kColumns = 2048;
    const CutFolder folder;
    const fs::path path = folder.path / "model.safetensors";
    std::vector<float> numbers(kRows * kColumns);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = static_cast<float>(i);
    }
    const std::vector<HostTensor> tensors{{"a", DType::f32, {kRows, kColumns}, std::as_bytes(std::span(numbers))}};
    const auto read = [](const vkf::Safetensors& file, std::size_t dim, std::int64_t whole, const vkf::Part& part) {
        std::vector<float> owned;
        const HostTensor own = vkf::cut(file.at("a"), {dim, whole, {part}}, owned);
        std::vector<float> out(own.data.size() / sizeof(float));
        vkf::copy_bytes(own.data, std::as_writable_bytes(std::span(out)).data());
        return out;
    };
    // what lies behind the first rank's last byte is gone: half of the last row, then half of all
    for (const std::int64_t missing : {kColumns / 2, kRows * kColumns / 2}) {
        vkf::save_safetensors(path, tensors);
        const vkf::Safetensors file(path);
        fs::resize_file(path, fs::file_size(path) - static_cast<std::uint64_t>(missing) * sizeof(float));
        const bool columns = missing < kColumns;
        const std::size_t dim = columns ? 1 : 0;
        const std::int64_t whole = columns ? kColumns : kRows, half = whole / 2;
        const std::vector<float> first = read(file, dim, whole, {0, half});
        REQUIRE(first.size() == numbers.size() / 2);
        CHECK(first.back() == (columns ? numbers[numbers.size() - kColumns / 2 - 1] : numbers[numbers.size() / 2 - 1]));
        CHECK(contains(error_of_cut([&] {
                           read(file, dim, whole, {half, half});
                       }),
                       "was cut short while it was in use"));
    }
}

#endif
