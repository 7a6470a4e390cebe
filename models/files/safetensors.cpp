// SPDX-License-Identifier: Apache-2.0
#include "models/files/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "models/files/safetensors_words.h"
#include "runtime/base/error.h"
#include "runtime/base/json_size.h"
#include "runtime/base/mapped_bytes.h"
#include "runtime/base/owned_json.h"
#include "runtime/base/text.h"
#include "runtime/graph/packed.h"

namespace vkf {

namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are used as the file holds them: little-endian");

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's bound
constexpr std::size_t kMostDimensions = 64;
constexpr std::size_t kMostNameBytes = 1 << 16;
// Of whole files, each with some hundred bytes of memory of its own; a dimension has 16.
constexpr std::size_t kMostTensors = 200'000, kMostMetadata = 400'000, kMostSizes = 3'000'000;

std::optional<DType> dtype_of(std::string_view name) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16,
                             DType::i8, DType::u8, DType::boolean}) {
        if (name == name_of(type)) return type;
    }
    return std::nullopt;
}

std::string tensor_label(std::string_view name) { return "tensor " + printable(name) + ": "; }

struct Entry {
    std::string name;
    std::optional<DType> dtype;
    std::optional<std::vector<std::int64_t>> shape;
    std::array<std::uint64_t, 2> offsets{};  // begin and end
    std::uint8_t offset_count = 0;
};

/// Takes the header as a stream of JSON events. Only the four levels the format has are entered, so
/// hostile nesting ends at its fifth bracket, and repeated names, which a parsed JSON object no
/// longer shows, are seen.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
public:
    explicit HeaderReader(const std::string& file) : file_(file) {}

    std::vector<Entry> entries;
    std::map<std::string, std::string> metadata;

    bool null() override { refuse("null"); }
    bool boolean(bool value) override { refuse(value ? "true" : "false"); }
    bool number_integer(number_integer_t value) override { refuse(std::to_string(value)); }
    bool number_float(number_float_t, const string_t& text) override { refuse(printable(text)); }
    bool binary(binary_t&) override { refuse("binary data"); }

    bool number_unsigned(number_unsigned_t value) override {
        if (place_ == Place::shape) {
            if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
                refuse(std::to_string(value));
            std::vector<std::int64_t>& shape = *entries.back().shape;
            if (shape.size() == kMostDimensions) {
                fail("has more than " + std::to_string(kMostDimensions) + " dimensions");
            }
            if (++sizes_ > kMostSizes)
                fail("with those before it has more than " + std::to_string(kMostSizes) + " sizes");
            shape.push_back(static_cast<std::int64_t>(value));
        } else if (place_ == Place::offsets && entries.back().offset_count < 2) {
            entries.back().offsets[entries.back().offset_count++] = value;
        } else {
            refuse(std::to_string(value));
        }
        return true;
    }

    bool string(string_t& value) override {
        if (place_ == Place::metadata_value) {
            if (!metadata.emplace(key_, value).second) fail("repeats the key " + printable(key_));
            if (metadata.size() > kMostMetadata) fail("has more than " + std::to_string(kMostMetadata) + " keys");
            place_ = Place::metadata;
        } else if (place_ == Place::dtype) {
            entries.back().dtype = dtype_of(value);
            if (!entries.back().dtype) fail("unknown dtype " + printable(value));
            place_ = Place::tensor;
        } else {
            refuse(printable(value));
        }
        return true;
    }

    bool start_object(std::size_t) override {
        switch (place_) {
            case Place::document: place_ = Place::names; return true;
            case Place::tensor_value: place_ = Place::tensor; return true;
            case Place::metadata_start: place_ = Place::metadata; return true;
            default: refuse("an object");
        }
    }

    bool key(string_t& name) override {
        if (place_ == Place::metadata) {
            key_ = name;
            place_ = Place::metadata_value;
        } else if (place_ == Place::names && name == kMetadataKey) {
            if (std::exchange(has_metadata_, true)) fail("repeats __metadata__");
            place_ = Place::metadata_start;
        } else if (place_ == Place::names) {
            if (entries.size() == kMostTensors) fail("has more than " + std::to_string(kMostTensors) + " tensors");
            if (name.size() > kMostNameBytes) fail("names a tensor in " + std::to_string(name.size()) + " bytes");
            entries.push_back({.name = name, .dtype = {}, .shape = {}, .offsets = {}, .offset_count = 0});
            place_ = Place::tensor_value;
        } else {
            field(name);
        }
        return true;
    }

    bool end_object() override {
        if (place_ == Place::tensor) {
            const Entry& entry = entries.back();
            if (!entry.dtype) fail("has no dtype");
            if (!entry.shape) fail("has no shape");
            if (entry.offset_count == 0) fail("has no data_offsets");
            place_ = Place::names;
        } else if (place_ == Place::metadata) {
            place_ = Place::names;
        }
        return true;
    }

    bool start_array(std::size_t) override {
        if (place_ == Place::shape_start) {
            entries.back().shape.emplace();
            place_ = Place::shape;
        } else if (place_ == Place::offsets_start) {
            place_ = Place::offsets;
        } else {
            refuse("an array");
        }
        return true;
    }

    bool end_array() override {
        if (place_ == Place::offsets && entries.back().offset_count != 2) refuse("fewer");
        place_ = Place::tensor;
        return true;
    }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
        throw Error("header is not valid JSON at byte " + std::to_string(position), file_);
    }

private:
    enum class Place {
        document,
        names,
        tensor_value,
        tensor,
        dtype,
        shape_start,
        shape,
        offsets_start,
        offsets,
        metadata_start,
        metadata,
        metadata_value
    };

    void field(const std::string& name) {
        const Entry& entry = entries.back();
        bool repeated = false;
        if (name == "dtype") {
            repeated = entry.dtype.has_value();
            place_ = Place::dtype;
        } else if (name == "shape") {
            repeated = entry.shape.has_value();
            place_ = Place::shape_start;
        } else if (name == "data_offsets") {
            repeated = entry.offset_count != 0;
            place_ = Place::offsets_start;
        } else {
            fail("unknown field " + printable(name));
        }
        if (repeated) fail("repeats the field " + name);
    }

    const char* expected() const {
        switch (place_) {
            case Place::document: return "the header to be an object";
            case Place::tensor_value: return "an object with dtype, shape and data_offsets";
            case Place::dtype: return "the name of a dtype";
            case Place::shape_start:
            case Place::shape: return "shape to be an array of whole numbers from 0 to 2^63-1";
            case Place::offsets_start:
            case Place::offsets: return "data_offsets to be two whole numbers of 64 bits";
            case Place::metadata_start: return "an object of strings";
            case Place::metadata_value: return "every value to be a string";
            case Place::names:
            case Place::tensor:
            case Place::metadata: break;  // there the parser lets nothing but a key through
        }
        return "a key";
    }

    [[noreturn]] void refuse(const std::string& found) {
        fail(std::string("expected ") + expected() + ", found " + found);
    }

    [[noreturn]] void fail(const std::string& what) {
        switch (place_) {
            case Place::document:
            case Place::names: throw Error(what, file_);
            case Place::metadata_start:
            case Place::metadata:
            case Place::metadata_value: throw Error("__metadata__: " + what, file_);
            default: throw Error(tensor_label(entries.back().name) + what, file_);
        }
    }

    const std::string& file_;
    Place place_ = Place::document;
    std::string key_;
    bool has_metadata_ = false;
    std::size_t sizes_ = 0;  // of all tensors
};

/// The tensor's bytes within `data`, if its offsets lie there and are as far apart as its shape and
/// dtype say.
HostTensor locate(Entry&& entry, std::span<const std::byte> data, const std::string& file) {
    const auto [begin, end] = std::pair(entry.offsets[0], entry.offsets[1]);
    const std::string range = "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
    const std::string label = tensor_label(entry.name);
    if (begin > end) throw Error(label + range + " end before they begin", file);
    if (end > data.size()) {
        throw Error(label + range + " pass the end of the data, " + std::to_string(data.size()) + " bytes", file);
    }
    const std::optional<std::uint64_t> bytes = byte_size(*entry.dtype, *entry.shape);
    if (!bytes) throw Error(label + "shape overflows", file);
    if (*bytes != end - begin) {
        throw Error(label + range + " span " + std::to_string(end - begin) + " bytes, but dtype and shape need " +
                        std::to_string(*bytes),
                    file);
    }
    return {.name = std::move(entry.name),
            .dtype = *entry.dtype,
            .shape = std::move(*entry.shape),
            .data = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))};
}

/// Tensors come in the order of their data and must fill it exactly.
void check_coverage(std::span<const HostTensor> tensors, std::span<const std::byte> data, const std::string& file) {
    std::size_t covered = 0;
    for (const HostTensor& tensor : tensors) {
        const auto begin = static_cast<std::size_t>(tensor.data.data() - data.data());
        if (begin < covered) throw Error(tensor_label(tensor.name) + "data overlaps that of another tensor", file);
        if (begin > covered) {
            throw Error(tensor_label(tensor.name) + "data begins " + std::to_string(begin - covered) +
                            " bytes after that of the tensor before it ends",
                        file);
        }
        covered += tensor.data.size();
    }
    if (covered != data.size()) {
        throw Error("the last " + std::to_string(data.size() - covered) + " bytes belong to no tensor", file);
    }
}

/// The note in a file about a packed tensor: "int4 2048", its type and columns.
struct PackedNote {
    WeightType type = WeightType::f32;
    std::int64_t columns = 0;
};

std::optional<PackedNote> packed_note(std::string_view text) {
    PackedNote note;
    const std::size_t space = std::min(text.find(' '), text.size());
    for (const WeightType type : {WeightType::f16, WeightType::bf16, WeightType::int8, WeightType::int4}) {
        note.type = text.substr(0, space) == name_of(type) ? type : note.type;
    }
    const char* end = text.data() + text.size();
    const auto number = std::from_chars(std::min(text.data() + space + 1, end), end, note.columns);
    const bool whole = number.ec == std::errc() && number.ptr == end;
    return whole && note.columns > 0 && note.type != WeightType::f32 ? std::optional(note) : std::nullopt;
}

/// Gives a tensor of words the shape of the numbers they stand for.
void unwrap(HostTensor& tensor, const PackedNote& note, const std::string& file) {
    const std::uint64_t words = packed_row_words(note.type, static_cast<std::uint64_t>(note.columns));
    const std::string wanted = "rows of " + std::to_string(note.columns) + " numbers packed as " +
                               std::string(name_of(note.type)) + " are " + std::to_string(words) + " words of I32";
    if (tensor.dtype != DType::i32 || tensor.shape.size() != 2 || tensor.data.empty() ||
        static_cast<std::uint64_t>(tensor.shape[1]) != words) {
        throw Error(tensor_label(tensor.name) + wanted + "; it is " + std::string(name_of(tensor.dtype)) + " " +
                        shape_text(tensor.shape),
                    file);
    }
    tensor.dtype = DType::f32;
    tensor.shape[1] = note.columns;
    tensor.type = note.type;
}

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& path) : file_(utf8_name(path)), mapping_(path) {
    read(mapping_.bytes());
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, std::string name) {
    Safetensors result;
    result.file_ = std::move(name);
    result.read(bytes);
    return result;
}

void Safetensors::read(std::span<const std::byte> bytes) {
    const std::string size_text = "file of " + std::to_string(bytes.size()) + " bytes";
    if (bytes.size() < kLengthBytes) throw Error(size_text + " is too short for a safetensors header", file_);
    std::uint64_t header_bytes = 0;
    copy_bytes(bytes.first(kLengthBytes), std::as_writable_bytes(std::span(&header_bytes, 1)).data());
    const std::string header_text = "header of " + std::to_string(header_bytes) + " bytes";
    if (header_bytes > kMaxHeaderBytes) {
        throw Error(
            header_text + " exceeds the limit of " + std::to_string(kMaxHeaderBytes) + "; not a safetensors file?",
            file_);
    }
    if (header_bytes > bytes.size() - kLengthBytes) throw Error(header_text + " does not fit a " + size_text, file_);

    const std::span<const std::byte> header = bytes.subspan(kLengthBytes, static_cast<std::size_t>(header_bytes));
    const std::span<const std::byte> data = bytes.subspan(kLengthBytes + header.size());
    std::string json(header.size(), '\0');
    copy_bytes(header, reinterpret_cast<std::byte*>(json.data()));
    // The parser would skip a byte order mark, and take a NUL for the end.
    if (!json.starts_with('{')) throw Error("header does not begin with '{'; not a safetensors file?", file_);
    if (json.find('\0') != json.npos) throw Error("header holds a NUL byte", file_);
    try {
        // the end of each text and number is asked for; the reader knows its levels
        parsed_bytes(json, std::numeric_limits<int>::max());
    } catch (const Error& error) {
        throw Error(std::string("header: ") + error.what(), file_);
    }
    HeaderReader reader(file_);
    read_json(json, reader);

    metadata_ = std::move(reader.metadata);
    std::ranges::sort(reader.entries, {},
                      [](const Entry& entry) { return std::pair(entry.offsets[0], entry.offsets[1]); });
    tensors_.reserve(reader.entries.size());
    for (Entry& entry : reader.entries) tensors_.push_back(locate(std::move(entry), data, file_));

    const auto name_at = [this](std::size_t index) -> std::string_view { return tensors_[index].name; };
    by_name_.resize(tensors_.size());
    std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
    std::ranges::sort(by_name_, {}, name_at);
    const auto repeated = std::ranges::adjacent_find(by_name_, {}, name_at);
    if (repeated != by_name_.end()) throw Error(tensor_label(name_at(*repeated)) + "the name occurs twice", file_);
    check_coverage(tensors_, data, file_);
    read_packed();
}

void Safetensors::read_packed() {
    const auto version = metadata_.find(kPackedKey);
    const bool known = version != metadata_.end() && version->second == kPackedVersion;
    if (version != metadata_.end() && !known) {
        throw Error("__metadata__: packed tensors of version " + printable(version->second) + "; only " +
                        kPackedVersion + " is known",
                    file_);
    }
    for (auto entry = metadata_.begin(); entry != metadata_.end();) {
        const auto& [key, value] = *entry;
        if (key == kPackedKey) {
            entry = metadata_.erase(entry);
            continue;
        }
        if (!key.starts_with(kPackedTensorKey)) {
            ++entry;
            continue;
        }
        const std::string_view name = std::string_view(key).substr(std::string_view(kPackedTensorKey).size());
        const HostTensor* found = find(name);
        const std::optional<PackedNote> note = packed_note(value);
        if (!known) throw Error("__metadata__: packed tensors, but no " + std::string(kPackedKey), file_);
        if (found == nullptr) throw Error(tensor_label(name) + "is packed by __metadata__, but is not there", file_);
        if (!note) {
            throw Error(tensor_label(name) + "packed as " + printable(value) +
                            ", where a type (f16, bf16, int8 or int4) and columns are expected",
                        file_);
        }
        unwrap(tensors_[static_cast<std::size_t>(found - tensors_.data())], *note, file_);
        entry = metadata_.erase(entry);
    }
}

const HostTensor* Safetensors::find(std::string_view name) const noexcept {
    const auto name_at = [this](std::size_t index) -> std::string_view { return tensors_[index].name; };
    const auto found = std::ranges::lower_bound(by_name_, name, {}, name_at);
    return found != by_name_.end() && name_at(*found) == name ? &tensors_[*found] : nullptr;
}

const HostTensor& Safetensors::at(std::string_view name) const {
    const HostTensor* tensor = find(name);
    if (tensor == nullptr) throw Error("no tensor " + printable(name), file_);
    return *tensor;
}

}  // namespace vkf
