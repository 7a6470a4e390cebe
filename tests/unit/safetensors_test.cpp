// SPDX-License-Identifier: Apache-2.0
#include "models/files/safetensors.h"

#include <doctest/doctest.h>

#ifdef __unix__
#include <sys/stat.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/write_file.h"
#include "tests/unit/text.h"

namespace {

using vkf::DType;
using vkf::Error;
using vkf::HostTensor;
using vkf::Safetensors;
using vkf::test::contains;

std::string with_length(std::uint64_t length, const std::string& rest) {
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    return file + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
    return with_length(header.size(), header + std::string(data_bytes, '\x01'));
}

std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

/// The message of the Error that parsing throws; "accepted" if it throws none.
std::string refusal(const std::string& file) {
    try {
        Safetensors::parse(bytes_of(file), "weights.safetensors");
    } catch (const Error& error) {
        CHECK(error.where() == "weights.safetensors");
        return error.what();
    }
    return "accepted";
}

std::string refusal(const std::string& header, std::size_t data_bytes) { return refusal(file_of(header, data_bytes)); }

/// A folder of its own, gone at the end of the test.
class TemporaryFolder {
public:
    TemporaryFolder()
        : path_(std::filesystem::temp_directory_path() / ("vkformer-" + std::to_string(std::random_device{}()))) {
        std::filesystem::create_directories(path_);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
    std::size_t files() const {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++count;
        return count;
    }

private:
    std::filesystem::path path_;
};

std::string open_refusal(const std::filesystem::path& path) {
    try {
        const Safetensors file(path);
    } catch (const Error& error) {
        CHECK(contains(error.what(), path.filename().string()));
        return error.what();
    }
    return "accepted";
}

const std::string kPair =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"I16","shape":[2,1],"data_offsets":[0,4]}})";

}  // namespace

TEST_CASE("safetensors: a well-formed file is read in the order of its data") {
    const std::string bytes = file_of(kPair, 12);
    const Safetensors file = Safetensors::parse(bytes_of(bytes), "pair");
    REQUIRE(file.tensors().size() == 2);
    CHECK(file.tensors()[0].name == "a");
    CHECK(file.tensors()[0].dtype == DType::i16);
    CHECK(file.tensors()[0].shape == std::vector<std::int64_t>{2, 1});
    CHECK(file.tensors()[0].data.size() == 4);
    CHECK(file.find("b") == &file.tensors()[1]);
    CHECK(file.at("b").data.data() == bytes_of(bytes).data() + bytes.size() - 8);
    CHECK(file.find("c") == nullptr);
    CHECK(file.metadata().empty());
    CHECK(file.file() == "pair");
    CHECK_THROWS_WITH_AS(file.at("c"), "pair: no tensor \"c\"", Error);
    const std::span<const HostTensor> converted = file;
    CHECK(converted.size() == 2);
}

TEST_CASE("safetensors: scalars, empty tensors, padding, metadata and any name are accepted") {
    const std::string header =
        R"({"__metadata__":{"format":"pt","":""},"scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
        R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]},"":{"dtype":"BOOL","shape":[1],"data_offsets":[8,9]},)"
        R"("größe.重み.\ud83d\ude00":{"dtype":"BF16","shape":[1,1,1],"data_offsets":[9,11]}}   )";
    const std::string bytes = file_of(header, 11);
    const Safetensors file = Safetensors::parse(bytes_of(bytes), "odd");
    REQUIRE(file.tensors().size() == 4);
    CHECK(file.at("scalar").shape.empty());
    CHECK(file.at("none").data.empty());
    CHECK(file.at("").dtype == DType::boolean);
    CHECK(file.at("größe.重み.😀").data.size() == 2);
    CHECK(file.metadata().at("format") == "pt");
    CHECK(refusal("{}", 0) == "accepted");
}

TEST_CASE("safetensors: a length that the file does not bear out is refused") {
    CHECK(contains(refusal(""), "file of 0 bytes is too short"));
    CHECK(contains(refusal("1234567"), "file of 7 bytes is too short"));
    CHECK(contains(refusal(with_length(0, "{}")), "does not begin with '{'"));
    CHECK(contains(refusal(with_length(3, "{}")), "header of 3 bytes does not fit a file of 10 bytes"));
    CHECK(contains(refusal(with_length(100'000'001, "{}")), "exceeds the limit"));
    CHECK(contains(refusal(with_length(std::numeric_limits<std::uint64_t>::max(), "{}")), "exceeds the limit"));
    CHECK(contains(refusal(with_length(1, "{}")), "not valid JSON"));
}

TEST_CASE("safetensors: every truncation is refused") {
    const std::string whole = file_of(kPair, 12);
    for (std::size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        CHECK(refusal(whole.substr(0, length)) != "accepted");
    }
    CHECK(contains(refusal(whole + "x"), "last 1 bytes belong to no tensor"));
}

TEST_CASE("safetensors: a header that is not the expected JSON is refused") {
    CHECK(contains(refusal("[]", 0), "does not begin with '{'"));
    CHECK(contains(refusal(" {}", 0), "does not begin with '{'"));
    CHECK(contains(refusal("\xEF\xBB\xBF{}", 0), "does not begin with '{'"));
    CHECK(contains(refusal("{", 0), "not valid JSON"));
    CHECK(contains(refusal("{}{}", 0), "not valid JSON"));
    CHECK(contains(refusal("{\"a\xFF\":{}}", 0), "not valid JSON"));
    CHECK(contains(refusal(R"({"\ud800":{}})", 0), "not valid JSON"));
    CHECK(contains(refusal(std::string("{}\0 ", 4), 0), "NUL"));
    CHECK(contains(refusal(R"({"a":1})", 0),
                   "tensor \"a\": expected an object with dtype, shape and data_offsets, found 1"));
    CHECK(contains(refusal(R"({"a":null})", 0), "found null"));
    CHECK(contains(refusal(R"({"a":[]})", 0), "found an array"));
    CHECK(contains(refusal(R"({"a":{"dtype":{}}})", 0), "expected the name of a dtype, found an object"));
    CHECK(contains(refusal(R"({"a":{"dtype":"F32","shape":[[1]]}})", 0), "found an array"));
    CHECK(contains(refusal(R"({"a":{"size":1}})", 0), "unknown field \"size\""));
    CHECK(contains(refusal(R"({"a":{"shape":[],"data_offsets":[0,4]}})", 4), "has no dtype"));
    CHECK(contains(refusal(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "has no shape"));
    CHECK(contains(refusal(R"({"a":{"dtype":"F32","shape":[]}})", 4), "has no data_offsets"));

    std::string deep = "{\"a\":";
    for (int i = 0; i < 1'000'000; ++i) deep += '[';
    CHECK(contains(refusal(deep, 0), "found an array"));
}

TEST_CASE("safetensors: a header's memory is bounded, whatever its bytes say") {
    const auto listed = [](const std::string& begin, int count, const std::string& before, const std::string& after) {
        std::string header = begin;
        for (int i = 0; i < count; ++i) {
            header += (i == 0 ? "\"" : ",\"") + before + std::to_string(i) + after;
        }
        return header;
    };
    const std::string tensor = R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    CHECK(refusal(listed("{", 200'000, "", tensor) + "}", 0) == "accepted");
    CHECK(contains(refusal(listed("{", 200'001, "", tensor) + "}", 0), "has more than 200000 tensors"));
    CHECK(contains(refusal(listed(R"({"__metadata__":{)", 400'001, "", "\":\"\"") + "}}", 0),
                   "has more than 400000 keys"));
    std::string shape = "0";
    for (int i = 0; i < 63; ++i) {
        shape += ",0";
    }
    CHECK(contains(
        refusal(listed("{", 50'000, "", R"(":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,0]})") + "}",
                0),
        "has more than 3000000 sizes"));
    CHECK(refusal("{\"" + std::string(65'536, 'n') + tensor + "}", 0) == "accepted");
    CHECK(contains(refusal("{\"" + std::string(65'537, 'n') + tensor + "}", 0), "names a tensor in 65537 bytes"));
    const std::string longest(4 << 20, 'n');
    CHECK(contains(refusal("{\"" + longest + tensor + "}", 0), "names a tensor in 4194304 bytes"));
    CHECK(contains(refusal("{\"" + longest + "n" + tensor + "}", 0), "header: it has a text of more than"));
    CHECK(contains(refusal("{\"a\":" + std::string(2000, '1') + "}", 0), "header: it has a number of more than 1000"));
}

TEST_CASE("safetensors: repeated names are refused") {
    const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
    const std::string a_again = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
    const std::string a_escaped = R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
    CHECK(contains(refusal("{" + a + "," + a_again + "}", 2), "tensor \"a\": the name occurs twice"));
    CHECK(contains(refusal("{" + a + "," + a_escaped + "}", 2), "tensor \"a\": the name occurs twice"));
    CHECK(contains(refusal(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0), "repeats the field dtype"));
    CHECK(contains(refusal(R"({"a":{"shape":[],"shape":[]}})", 0), "repeats the field shape"));
    CHECK(
        contains(refusal(R"({"a":{"data_offsets":[0,0],"data_offsets":[0,0]}})", 0), "repeats the field data_offsets"));
    CHECK(contains(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), "repeats __metadata__"));
    CHECK(contains(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "repeats the key \"k\""));
}

TEST_CASE("safetensors: metadata is strings only") {
    CHECK(contains(refusal(R"({"__metadata__":{"k":1}})", 0),
                   "__metadata__: expected every value to be a string, found 1"));
    CHECK(contains(refusal(R"({"__metadata__":{"k":{}}})", 0), "found an object"));
    CHECK(contains(refusal(R"({"__metadata__":[]})", 0), "expected an object of strings"));
    CHECK(contains(refusal(R"({"__metadata__":"k"})", 0), "expected an object of strings"));
}

TEST_CASE("safetensors: dtype and shape are believed only if they make sense") {
    const auto tensor = [](const std::string& dtype, const std::string& shape, std::size_t bytes) {
        return refusal(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" +
                           std::to_string(bytes) + "]}}",
                       bytes);
    };
    CHECK(tensor("F32", "[1]", 4) == "accepted");
    CHECK(contains(tensor("F33", "[1]", 4), "unknown dtype \"F33\""));
    CHECK(contains(tensor("f32", "[1]", 4), "unknown dtype \"f32\""));
    CHECK(contains(tensor("F32", "[-1]", 4), "from 0 to 2^63-1, found -1"));
    CHECK(contains(tensor("F32", "[1.0]", 4), "found \"1.0\""));
    CHECK(contains(tensor("F32", "[9223372036854775808]", 4), "found 9223372036854775808"));
    CHECK(contains(tensor("F32", "[99999999999999999999999]", 4), "from 0 to 2^63-1"));
    CHECK(contains(tensor("F32", "[\"1\"]", 4), "found \"1\""));
    CHECK(contains(tensor("F32", "1", 4), "expected shape to be an array"));
    CHECK(contains(tensor("F32", "[4294967296,4294967296]", 0), "shape overflows"));
    CHECK(contains(tensor("F32", "[0,4294967296,4294967296]", 0), "shape overflows"));
    CHECK(contains(tensor("F64", "[1152921504606846976]", 0), "shape overflows"));
    CHECK(contains(tensor("F32", "[2]", 4), "span 4 bytes, but dtype and shape need 8"));
    CHECK(contains(tensor("F16", "[1]", 4), "span 4 bytes, but dtype and shape need 2"));
    std::string ones = "[1";
    for (int i = 0; i < 63; ++i) ones += ",1";
    CHECK(tensor("U8", ones + "]", 1) == "accepted");
    CHECK(contains(tensor("U8", ones + ",1]", 1), "has more than 64 dimensions"));
}

TEST_CASE("safetensors: offsets must lie in the data and cover it once") {
    const auto offsets = [](const std::string& values, std::size_t bytes) {
        return refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + values + "}}", bytes);
    };
    CHECK(offsets("[0,4]", 4) == "accepted");
    CHECK(contains(offsets("[4,0]", 4), "end before they begin"));
    CHECK(contains(offsets("[0,4]", 3), "pass the end of the data, 3 bytes"));
    CHECK(contains(offsets("[18446744073709551612,18446744073709551615]", 4), "pass the end of the data"));
    CHECK(contains(offsets("[18446744073709551615,3]", 4), "end before they begin"));
    CHECK(contains(offsets("[0]", 4), "to be two whole numbers of 64 bits"));
    CHECK(contains(offsets("[]", 4), "to be two whole numbers of 64 bits"));
    CHECK(contains(offsets("[0,4,4]", 4), "to be two whole numbers of 64 bits"));
    CHECK(contains(offsets("[-1,4]", 4), "found -1"));
    CHECK(contains(offsets("[1,5]", 5), "begins 1 bytes after"));
    CHECK(contains(offsets("[0,4]", 5), "last 1 bytes belong to no tensor"));

    const auto two = [](const std::string& first, const std::string& second, std::size_t bytes) {
        return refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                       bytes);
    };
    CHECK(two("[4,8]", "[0,4]", 8) == "accepted");
    CHECK(contains(two("[0,4]", "[3,7]", 7), "tensor \"b\": data overlaps"));
    CHECK(contains(two("[0,4]", "[0,4]", 4), "data overlaps"));
    CHECK(contains(two("[0,4]", "[5,9]", 9), "tensor \"b\": data begins 1 bytes after"));
}

TEST_CASE("safetensors: names in messages are bounded and without control characters") {
    const std::string message = refusal("{\"\\u001b[2J" + std::string(5000, 'x') + "\":1}", 0);
    CHECK(contains(message, "tensor \"?[2Jxxx"));
    CHECK(message.size() < 400);
    std::string wide = "{\"";
    for (int i = 0; i < 1000; ++i) wide += "é";
    CHECK(contains(refusal(wide + "é\":1}", 0), "é...\": expected"));
}

TEST_CASE("safetensors: files that are none are named") {
    const TemporaryFolder folder;
    CHECK(contains(open_refusal(folder / "missing.safetensors"), "cannot open"));
    std::filesystem::create_directory(folder / "folder.safetensors");
    CHECK(open_refusal(folder / "folder.safetensors") != "accepted");
    std::ofstream(folder / "empty.safetensors").close();
    CHECK(contains(open_refusal(folder / "empty.safetensors"), "file of 0 bytes is too short"));
    std::ofstream(folder / "text.safetensors") << "This is a text file, not a tensor file.";
    CHECK(contains(open_refusal(folder / "text.safetensors"), "not a safetensors file"));
}

TEST_CASE("safetensors: what is written is read back, aligned and in place of the old file") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "größe.safetensors";
    const std::array<float, 6> weight{1.f, -2.f, 0.5f, std::numeric_limits<float>::infinity(), -0.f, 3.25f};
    const std::array<std::uint8_t, 3> mask{1, 0, 1};
    const std::array<std::int64_t, 1> step{-7};
    const std::vector<HostTensor> tensors{
        {"mask", DType::u8, {3}, std::as_bytes(std::span(mask))},
        {"größe \"x\"\n", DType::f32, {2, 3}, std::as_bytes(std::span(weight))},
        {"step", DType::i64, {}, std::as_bytes(std::span(step))},
        {"none", DType::f16, {4, 0}, {}},
    };
    vkf::save_safetensors(path, {}, {});
    CHECK(Safetensors(path).tensors().empty());
    vkf::save_safetensors(path, tensors, {{"format", "pt"}, {"note", "für dich"}});
    CHECK(folder.files() == 1);

    Safetensors opened(path);
    const Safetensors file = std::move(opened);
    REQUIRE(file.tensors().size() == tensors.size());
    for (const HostTensor& want : tensors) {
        CAPTURE(want.name);
        const HostTensor& got = file.at(want.name);
        CHECK(got.dtype == want.dtype);
        CHECK(got.shape == want.shape);
        REQUIRE(got.data.size() == want.data.size());
        CHECK(std::equal(got.data.begin(), got.data.end(), want.data.begin()));
        CHECK(reinterpret_cast<std::uintptr_t>(got.data.data()) % vkf::size_of(got.dtype) == 0);
    }
    CHECK(file.metadata().size() == 2);
    CHECK(file.metadata().at("note") == "für dich");
}

#ifdef __unix__
TEST_CASE("safetensors: a link stays one, permissions are kept, and what is no regular file is not replaced") {
    namespace fs = std::filesystem;
    const TemporaryFolder folder;
    fs::create_directory(folder / "elsewhere");
    vkf::save_safetensors(folder / "elsewhere" / "first.safetensors", {}, {});
    fs::permissions(folder / "elsewhere" / "first.safetensors", fs::perms::owner_read | fs::perms::owner_write);
    fs::create_symlink("elsewhere/first.safetensors", folder / "latest.safetensors");
    vkf::save_safetensors(folder / "latest.safetensors", {}, {{"format", "pt"}});
    CHECK(fs::is_symlink(folder / "latest.safetensors"));
    CHECK(Safetensors(folder / "elsewhere" / "first.safetensors").metadata().count("format") == 1);
    CHECK(fs::status(folder / "elsewhere" / "first.safetensors").permissions() ==
          (fs::perms::owner_read | fs::perms::owner_write));
    fs::create_symlink("elsewhere/not yet", folder / "dangling");
    vkf::save_safetensors(folder / "dangling", {}, {});
    CHECK(fs::is_regular_file(folder / "elsewhere" / "not yet"));
    fs::create_symlink("itself", folder / "itself");
    CHECK_THROWS_WITH_AS(vkf::save_safetensors(folder / "itself", {}, {}), doctest::Contains("is a link to itself"),
                         Error);
    REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(vkf::save_safetensors(folder / "pipe", {}, {}),
                         doctest::Contains("is no regular file, and is not replaced"), Error);
    CHECK(fs::is_fifo(folder / "pipe"));
    CHECK_THROWS_WITH_AS(vkf::save_safetensors(folder / "elsewhere", {}, {}), doctest::Contains("no regular file"),
                         Error);
}
#endif

TEST_CASE("safetensors: what no reader would accept is not written") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "out.safetensors";
    const std::array<std::byte, 4> data{};
    const auto save = [&](const std::vector<HostTensor>& tensors) { vkf::save_safetensors(path, tensors); };
    CHECK_THROWS_AS(save({{"a", DType::f32, {2}, data}}), Error);
    CHECK_THROWS_AS(save({{"a", DType::f32, {-1}, data}}), Error);
    CHECK_THROWS_AS(save({{"a", DType::f32, {1}, data}, {"a", DType::u8, {4}, data}}), Error);
    CHECK_THROWS_AS(save({{"__metadata__", DType::f32, {1}, data}}), Error);
    CHECK_THROWS_AS(save({{"\xFF", DType::f32, {1}, data}}), Error);
    CHECK_THROWS_AS(vkf::save_safetensors(path, {}, {{"k", "\xC3"}}), Error);
    CHECK(folder.files() == 0);
    CHECK_THROWS_AS(vkf::save_safetensors(folder / "no" / "out.safetensors", {}), Error);
    std::filesystem::create_directories(path / "in the way");
    CHECK_THROWS_AS(vkf::save_safetensors(path, {}), Error);
    CHECK(folder.files() == 1);
}

TEST_CASE("safetensors: packed matrices are read back packed") {
    using vkf::WeightType;
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "packed.safetensors";
    const std::vector<std::uint32_t> words(2 * 12, 0x12345678u);
    const std::array<float, 2> norm{1.f, 2.f};
    const HostTensor matrix{"größe", DType::f32, {2, 33}, std::as_bytes(std::span(words)), WeightType::int4};
    const HostTensor vector{"norm", DType::f32, {2}, std::as_bytes(std::span(norm))};
    vkf::save_safetensors(path, std::array{matrix, vector}, {{"note", "x"}});
    const Safetensors file(path);
    const HostTensor& got = file.at("größe");
    CHECK(got.type == WeightType::int4);
    CHECK(got.dtype == DType::f32);
    CHECK(got.shape == std::vector<std::int64_t>{2, 33});
    CHECK(std::equal(got.data.begin(), got.data.end(), matrix.data.begin(), matrix.data.end()));
    CHECK(file.at("norm").type == WeightType::f32);
    CHECK(file.metadata() == std::map<std::string, std::string>{{"note", "x"}});
    const std::filesystem::path again = folder / "again.safetensors";
    vkf::save_safetensors(again, file, file.metadata());
    CHECK(std::filesystem::file_size(again) == std::filesystem::file_size(path));
    CHECK(Safetensors(again).at("größe").type == WeightType::int4);

    const auto save = [&](HostTensor t) { vkf::save_safetensors(folder / "bad.safetensors", {&t, 1}); };
    const auto bytes = matrix.data;
    // 8 words a row
    CHECK_THROWS_AS(save({"a", DType::f32, {2, 32}, bytes, WeightType::int4}), Error);
    CHECK_THROWS_AS(save({"a", DType::f16, {2, 33}, bytes, WeightType::int4}), Error);
    CHECK_THROWS_AS(save({"a", DType::f32, {66}, bytes, WeightType::int4}), Error);
    CHECK_THROWS_AS(save({"a", DType::f32, {0, 33}, {}, WeightType::int4}), Error);
    CHECK_THROWS_AS(vkf::save_safetensors(path, {}, {{"vkformer.packed", "1"}}), Error);
    CHECK(folder.files() == 2);
}

TEST_CASE("safetensors: what a file says of packed matrices must be so") {
    const auto said = [](const std::string& metadata, const std::string& dtype = "I32", const char* shape = "[2,12]") {
        return refusal(R"({"__metadata__":{)" + metadata + R"(},"a":{"dtype":")" + dtype + R"(","shape":)" + shape +
                           R"(,"data_offsets":[0,96]}})",
                       96);
    };
    const auto note = [&](const std::string& text) {
        return said(R"("vkformer.packed":"1","vkformer.packed:a":")" + text + "\"");
    };
    const std::string good = R"("vkformer.packed":"1","vkformer.packed:a":"int4 33")";
    CHECK(said(good) == "accepted");
    CHECK(said(R"("vkformer.packed":"1")") == "accepted");
    CHECK(note("int4 64") == "accepted");
    CHECK(note("f16 24") == "accepted");
    CHECK(contains(note("int4 32"),
                   "tensor \"a\": rows of 32 numbers packed as int4 are 8 words of I32; it is I32 (2, 12)"));
    CHECK(contains(note("int8 33"), "are 16 words"));
    CHECK(contains(note("int4 9223372036854775807"), "tensor \"a\": rows of 9223372036854775807"));
    for (const char* text : {"int5 33", "f32 33", "int4", "int4 ", "int4 0", "int4 -33", "int4 33 ", "int4  33", "33",
                             "", "int4 9223372036854775808", "INT4 33"}) {
        CAPTURE(text);
        CHECK(contains(note(text), "tensor \"a\": packed as \"" + std::string(text) + "\", where a type"));
    }
    CHECK(contains(said(good, "F32"), "words of I32; it is F32 (2, 12)"));
    CHECK(contains(said(good, "I32", "[24]"), "it is I32 (24)"));
    CHECK(contains(said(R"("vkformer.packed":"2","vkformer.packed:a":"int4 33")"),
                   "packed tensors of version \"2\"; only 1 is known"));
    CHECK(contains(said(R"("vkformer.packed:a":"int4 33")"), "packed tensors, but no vkformer.packed"));
    CHECK(contains(said(R"("vkformer.packed":"1","vkformer.packed:b":"int4 33")"),
                   "tensor \"b\": is packed by __metadata__, but is not there"));
}

TEST_CASE("write_file: what cannot be flushed to its disk is named") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "data";
    CHECK_THROWS_WITH_AS(vkf::flush_to_disk(path), doctest::Contains("cannot be written to its disk: No such file"),
                         Error);
    std::ofstream(path, std::ios::binary) << "0123456789";
    vkf::flush_to_disk(path);
    CHECK(std::filesystem::file_size(path) == 10);
}

TEST_CASE("map_file: bytes outlive a move and equal the file") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "data";
    std::ofstream(path, std::ios::binary) << "0123456789";
    vkf::MappedFile first(path);
    const std::byte* address = first.bytes().data();
    vkf::MappedFile second(std::move(first));
    CHECK(second.bytes().data() == address);
    CHECK(second.bytes().size() == 10);
    CHECK(std::memcmp(second.bytes().data(), "0123456789", 10) == 0);
    second = vkf::MappedFile(path);
    CHECK(second.bytes().size() == 10);
    CHECK(vkf::MappedFile().bytes().empty());
}
