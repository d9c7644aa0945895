#include "fluid/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"
#include "fluid/io/strict_json_impl.h"

namespace fleet::fluid {
namespace {

using Json = nlohmann::json;

// Longest header that is read, and the deepest nesting in it.
constexpr uint64_t kMaxHeader = uint64_t{100} << 20;
constexpr int kMaxDepth = 4;
// Handed to the disk at once.
constexpr size_t kDiskPiece = size_t{8} << 20;
// Stays in the cache from one pass over it to the next.
constexpr uint64_t kCached = uint64_t{256} << 10;

constexpr std::array<std::pair<std::string_view, DType>, 10> kNames = {
    std::pair{"BOOL", DType::kBool},   std::pair{"U8", DType::kUInt8},
    std::pair{"I8", DType::kInt8},     std::pair{"I16", DType::kInt16},
    std::pair{"I32", DType::kInt32},   std::pair{"I64", DType::kInt64},
    std::pair{"F16", DType::kFloat16}, std::pair{"BF16", DType::kBFloat16},
    std::pair{"F32", DType::kFloat32}, std::pair{"F64", DType::kFloat64}};

std::string_view format_name(DType dtype) {
  return kNames[static_cast<size_t>(dtype)].first;
}

std::optional<DType> parse_name(std::string_view name) {
  for (const auto& [text, dtype] : kNames) {
    if (text == name) return dtype;
  }
  return std::nullopt;
}

Status corrupt(const std::filesystem::path& path, std::string what, std::string got = {}) {
  return {ErrorCode::kCorruptFile,
          {.what = std::move(what),
           .where = "file " + path.string(),
           .expected = "a safetensors file",
           .got = std::move(got),
           .fix = "write the file anew"}};
}

Status unreadable(const std::filesystem::path& path, const std::error_code& error) {
  return {ErrorCode::kInput,
          {.what = "the file cannot be read",
           .where = "file " + path.string(),
           .expected = "a readable safetensors file",
           .got = error.message(),
           .fix = "check the path and its permissions"}};
}

// All of `into`.
std::error_code read_all(InputFile& file, std::span<std::byte> into) {
  while (!into.empty()) {
    size_t got = 0;
    if (const std::error_code error = file.read(into, got)) return error;
    if (got == 0) return std::make_error_code(std::errc::io_error);
    into = into.subspan(got);
  }
  return {};
}

bool are_booleans(std::span<const std::byte> data) {
  return std::all_of(data.begin(), data.end(),
                     [](std::byte each) { return std::to_integer<int>(each) <= 1; });
}

// One entry of the header, checked against the size of the data; nothing when it does not fit.
std::optional<SafetensorsReader::Entry> parse_entry(const Json& json, uint64_t data_begin,
                                                    uint64_t data_bytes) {
  if (!json.is_object() || json.size() != 3) return std::nullopt;
  const auto dtype = json.find("dtype");
  const auto shape = json.find("shape");
  const auto offsets = json.find("data_offsets");
  if (dtype == json.end() || shape == json.end() || offsets == json.end()) return std::nullopt;
  if (!dtype->is_string() || !shape->is_array() || !offsets->is_array()) return std::nullopt;
  const auto type = parse_name(dtype->get_ref<const std::string&>());
  if (!type || shape->size() > Shape::kMaxRank || offsets->size() != 2) return std::nullopt;
  SafetensorsReader::Entry entry;
  entry.dtype = *type;
  uint64_t numel = 1;
  for (const Json& dim : *shape) {
    if (!dim.is_number_unsigned()) return std::nullopt;
    const auto size = dim.get<uint64_t>();
    // A tensor without elements may have any other dimension below 2^32.
    if (size > UINT32_MAX || (size != 0 && numel > data_bytes / size && numel != 0)) {
      return std::nullopt;
    }
    numel *= size;
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  for (const Json& offset : *offsets) {
    if (!offset.is_number_unsigned()) return std::nullopt;
  }
  const auto begin = (*offsets)[0].get<uint64_t>();
  const auto end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data_bytes) return std::nullopt;
  if ((end - begin) / dtype_size(*type) != numel || (end - begin) % dtype_size(*type) != 0) {
    return std::nullopt;
  }
  entry.begin = data_begin + begin;
  entry.bytes = end - begin;
  return entry;
}

std::string header_of(const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", std::string(format_name(tensor.dtype()))},
                    {"shape", tensor.shape().to_vector()},
                    {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

std::span<const std::byte> bytes_of(const Tensor& host) {
  return {host.raw(), host.bytes()};
}

// Shows them in pieces that stay in the cache.
void show(const std::string& name, const Tensor& elements, const ElementsSeen& seen) {
  const auto piece = static_cast<int64_t>(kCached / dtype_size(elements.dtype()));
  for (int64_t i = 0; i < elements.numel(); i += piece) {
    seen(name, elements.rows(i, std::min(i + piece, elements.numel())));
  }
}

}  // namespace

std::vector<std::byte> encode_safetensors(const NamedTensors& tensors,
                                          const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  const auto begin = std::as_bytes(std::span(header));
  std::vector<std::byte> bytes(begin.begin(), begin.end());
  for (const auto& [name, tensor] : tensors) {
    const Tensor host = tensor.on_host();
    const auto data = bytes_of(host);
    bytes.insert(bytes.end(), data.begin(), data.end());
  }
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata, FileSystem& files,
                       const ElementsSeen& seen) {
  AtomicFile file(path, files);
  const std::string header = header_of(tensors, metadata);
  file.append(std::as_bytes(std::span(header)));
  for (const auto& [name, tensor] : tensors) {
    const Tensor host = tensor.on_host();
    const Tensor elements = host.reshaped({host.numel()});
    const auto piece = static_cast<int64_t>(kDiskPiece / dtype_size(host.dtype()));
    for (int64_t i = 0; i < elements.numel(); i += piece) {
      const Tensor part = elements.rows(i, std::min(i + piece, elements.numel()));
      if (seen) show(name, part, seen);
      if (i > 0) file.wait_for_disk();
      file.append(bytes_of(part));
    }
  }
  file.commit();
}

Result<SafetensorsReader> SafetensorsReader::open(const std::filesystem::path& path,
                                                  FileSystem& files) {
  std::error_code error;
  const auto file = files.open(path, error);
  if (error) return unreadable(path, error);
  const uint64_t size = file->size();
  uint64_t length = 0;
  if (size < sizeof length) return corrupt(path, "the file is too short", str_cat(size, " bytes"));
  error = read_all(*file, std::as_writable_bytes(std::span(&length, 1)));
  if (error) return unreadable(path, error);
  if (length > size - sizeof length || length > kMaxHeader) {
    return corrupt(path, "the header is longer than the file", str_cat(length, " bytes"));
  }
  std::string text(length, '\0');
  error = read_all(*file, std::as_writable_bytes(std::span(text)));
  if (error) return unreadable(path, error);
  const Json header = io::parse_strict_json(text, kMaxDepth);
  if (!header.is_object()) return corrupt(path, "the header is not a JSON object");
  SafetensorsReader reader;
  reader.files_ = &files;
  reader.path_ = path;
  const uint64_t data_begin = sizeof length + length;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      if (!json.is_object()) return corrupt(path, "the metadata is not an object");
      for (const auto& [key, value] : json.items()) {
        if (!value.is_string()) return corrupt(path, "a metadata value is not a text", key);
        reader.metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    const auto entry = parse_entry(json, data_begin, size - data_begin);
    if (!entry) return corrupt(path, "an entry of the header does not fit the file", name);
    reader.entries_.emplace(name, *entry);
  }
  return reader;
}

Result<const SafetensorsReader::Entry*> SafetensorsReader::find(std::string_view name) const {
  const auto found = entries_.find(std::string(name));
  if (found != entries_.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries_) names.push_back(known);
  return Status(ErrorCode::kUnknownName,
                {.what = "the file holds no such tensor" + did_you_mean(name, names),
                 .where = "file " + path_.string(),
                 .expected = "one of its tensors",
                 .got = std::string(name),
                 .fix = "check the name"});
}

template <class Memory>
Result<uint32_t> SafetensorsReader::read_pieces(std::string_view name, const Memory& memory) const {
  const auto found = find(name);
  if (!found.ok()) return found.status();
  const Entry& entry = *found.value();
  std::error_code error;
  const auto file = files_->open(path_, error);
  if (!error) error = file->seek(entry.begin);
  uint32_t sum = 0;
  bool fit = true;
  for (uint64_t begin = 0; !error && begin < entry.bytes;) {
    const std::span<std::byte> piece = memory(begin, std::min(entry.bytes - begin, kCached));
    error = read_all(*file, piece);
    sum = crc32c(piece, sum);
    fit = fit && (entry.dtype != DType::kBool || are_booleans(piece));
    begin += piece.size();
  }
  if (error) return unreadable(path_, error);
  if (!fit) return corrupt(path_, "a boolean is neither 0 nor 1", std::string(name));
  return sum;
}

Result<uint32_t> SafetensorsReader::read_into(std::string_view name, Tensor& tensor) const {
  return read_pieces(name, [&tensor](uint64_t begin, uint64_t size) {
    return std::span(tensor.raw() + begin, size);
  });
}

Result<uint32_t> SafetensorsReader::checksum(std::string_view name) const {
  std::vector<std::byte> memory(kCached);
  return read_pieces(name,
                     [&memory](uint64_t, uint64_t size) { return std::span(memory).first(size); });
}

Result<Tensor> SafetensorsReader::read(std::string_view name) const {
  const auto found = find(name);
  if (!found.ok()) return found.status();
  Tensor tensor(found.value()->dtype, found.value()->shape);
  const auto sum = read_into(name, tensor);
  if (!sum.ok()) return sum.status();
  return tensor;
}

}  // namespace fleet::fluid
