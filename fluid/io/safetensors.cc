#include "fluid/io/safetensors.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
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
constexpr size_t kPiece = size_t{8} << 20;

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

// The length and the header, then the data of each tensor.
template <class Use>
void each_part(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
               const Use& use) {
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
  use(std::as_bytes(std::span(&length, 1)));
  use(std::as_bytes(std::span(text)));
  for (const auto& [name, tensor] : tensors) {
    const Tensor host = tensor.on_host();
    use(std::span(host.raw(), host.bytes()));
  }
}

}  // namespace

std::vector<std::byte> encode_safetensors(const NamedTensors& tensors,
                                          const std::map<std::string, std::string>& metadata) {
  std::vector<std::byte> bytes;
  each_part(tensors, metadata, [&bytes](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata, FileSystem& files) {
  AtomicFile file(path, files);
  each_part(tensors, metadata, [&file](std::span<const std::byte> part) {
    for (; part.size() > kPiece; part = part.subspan(kPiece)) {
      file.wait_for_disk();
      file.append(part.first(kPiece));
    }
    file.append(part);
  });
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

Result<Tensor> SafetensorsReader::read(std::string_view name) const {
  const auto found = entries_.find(std::string(name));
  if (found == entries_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, entry] : entries_) names.push_back(known);
    return Status(ErrorCode::kUnknownName,
                  {.what = "the file holds no such tensor" + did_you_mean(name, names),
                   .where = "file " + path_.string(),
                   .expected = "one of its tensors",
                   .got = std::string(name),
                   .fix = "check the name"});
  }
  const Entry& entry = found->second;
  std::error_code error;
  const auto file = files_->open(path_, error);
  if (!error) error = file->seek(entry.begin);
  Tensor tensor(entry.dtype, entry.shape);
  if (!error) error = read_all(*file, {tensor.raw(), entry.bytes});
  if (error) return unreadable(path_, error);
  if (entry.dtype == DType::kBool) {
    for (size_t i = 0; i < entry.bytes; ++i) {
      if (std::to_integer<int>(tensor.raw()[i]) > 1) {
        return corrupt(path_, "a boolean is neither 0 nor 1", std::string(name));
      }
    }
  }
  return tensor;
}

}  // namespace fleet::fluid
