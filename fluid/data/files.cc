#include "fluid/data/files.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/formats/streams/byte_source.h"

namespace fleet::fluid::data {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kBlockBytes = size_t{1} << 18;

[[noreturn]] void refuse(const std::filesystem::path& path, ErrorCode code, std::string what,
                         std::string expected, std::string got, std::string fix) {
  throw_error(code, {.what = std::move(what),
                     .where = "file " + path.string(),
                     .expected = std::move(expected),
                     .got = std::move(got),
                     .fix = std::move(fix)});
}

// The elements that follow a header must be exactly what its shape says.
class Payload {
 public:
  Payload(const std::filesystem::path& path, std::string_view format, std::string_view bytes)
      : path_(path), format_(format), bytes_(bytes) {}

  Tensor tensor(DType dtype, const std::vector<int64_t>& dims) const {
    uint64_t bytes = dtype_size(dtype);
    for (const int64_t dim : dims) {
      if (dim < 0 || (dim > 0 && bytes > kMaxFileBytes / static_cast<uint64_t>(dim))) {
        corrupt("a shape that fits into memory", str_cat("[", join(dims, ", "), "]"));
      }
      bytes *= static_cast<uint64_t>(dim);
    }
    if (bytes != bytes_.size()) {
      corrupt(str_cat(bytes, " bytes of elements for [", join(dims, ", "), "]"),
              str_cat(bytes_.size(), " bytes"));
    }
    Tensor out(dtype, Shape(dims));
    if (bytes > 0) std::memcpy(out.raw(), bytes_.data(), bytes_.size());
    return out;
  }

  [[noreturn]] void corrupt(std::string expected, std::string got) const {
    refuse(path_, ErrorCode::kCorruptFile, str_cat("this is not a whole ", format_, " file"),
           std::move(expected), std::move(got), "fetch or write the file anew");
  }

 private:
  const std::filesystem::path& path_;
  std::string_view format_;
  std::string_view bytes_;
};

std::optional<DType> idx_dtype(uint8_t code) {
  switch (code) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0B:
      return DType::kInt16;
    case 0x0C:
      return DType::kInt32;
    case 0x0D:
      return DType::kFloat32;
    case 0x0E:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

void reverse_elements(Tensor& tensor) {
  const size_t size = dtype_size(tensor.dtype());
  std::byte* element = tensor.raw();
  for (int64_t i = 0; i < tensor.numel(); ++i, element += size) {
    std::reverse(element, element + size);
  }
}

constexpr std::array<std::pair<std::string_view, DType>, 10> kNpyTypes = {
    std::pair{"|b1", DType::kBool},    std::pair{"|u1", DType::kUInt8},
    std::pair{"|i1", DType::kInt8},    std::pair{"<i2", DType::kInt16},
    std::pair{"<i4", DType::kInt32},   std::pair{"<i8", DType::kInt64},
    std::pair{"<f2", DType::kFloat16}, std::pair{"<f4", DType::kFloat32},
    std::pair{"<f8", DType::kFloat64}, std::pair{"", DType::kBFloat16}};

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr size_t kNpyAlignment = 64;

// The text after `'key':` in the header's dictionary, up to `end`.
std::optional<std::string_view> npy_field(std::string_view header, std::string_view key, char end) {
  const std::string quoted = str_cat("'", key, "':");
  const size_t at = header.find(quoted);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = header.substr(at + quoted.size());
  const size_t stop = rest.find(end);
  if (stop == std::string_view::npos) return std::nullopt;
  return trim(rest.substr(0, stop));
}

std::vector<int64_t> npy_dims(const Payload& payload, std::string_view text) {
  std::vector<int64_t> dims;
  if (!text.starts_with('(')) payload.corrupt("a shape in brackets", std::string(text));
  for (const std::string& part : split(text.substr(1), ',')) {
    if (trim(part).empty()) continue;
    const auto dim = parse_int(trim(part));
    if (!dim || dims.size() >= 8) payload.corrupt("up to 8 whole numbers", std::string(text));
    dims.push_back(*dim);
  }
  return dims;
}

Tensor parse_npy(const std::filesystem::path& path, std::string_view file) {
  const Payload whole(path, ".npy", file);
  const size_t length_bytes = file.size() > 6 && file[6] == 1 ? 2 : 4;
  const size_t prefix = kNpyMagic.size() + 2 + length_bytes;
  if (!file.starts_with(kNpyMagic) || file.size() < prefix) {
    whole.corrupt("a file that begins with \\x93NUMPY", str_cat(file.size(), " bytes"));
  }
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) {
    length |= size_t{static_cast<uint8_t>(file[prefix - length_bytes + i])} << (8 * i);
  }
  if (length > file.size() - prefix) whole.corrupt("a whole header", "a cut file");
  const std::string_view header = file.substr(prefix, length);
  const auto descr = npy_field(header, "descr", ',');
  const auto order = npy_field(header, "fortran_order", ',');
  const auto shape = npy_field(header, "shape", ')');
  if (!descr || !order || !shape) whole.corrupt("descr, fortran_order and shape", "less");

  const std::string_view type = descr->size() > 2 ? descr->substr(1, descr->size() - 2) : "?";
  const auto known = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                  [&](const auto& entry) { return entry.first == type; });
  if (known == kNpyTypes.end() || *order != "False") {
    refuse(path, ErrorCode::kNotSupported, "this array's layout is not supported",
           "C order and bool, int8 to int64, uint8 or a little-endian float",
           str_cat(type, *order == "False" ? "" : ", Fortran order"),
           "save it with numpy.ascontiguousarray(a).astype(...)");
  }
  const Payload payload(path, ".npy", file.substr(prefix + length));
  return payload.tensor(known->second, npy_dims(payload, *shape));
}

}  // namespace

std::string read_file(const std::filesystem::path& path, uint64_t max_bytes) {
  const std::unique_ptr<ByteSource> source = open_source(path);
  std::string text;
  std::vector<char> block(kBlockBytes);
  for (;;) {
    const size_t got = source->read(block);
    text.append(block.data(), got);
    if (text.size() > max_bytes) {
      refuse(path, ErrorCode::kInput, "the file is too large", str_cat("at most ", max_bytes),
             "more bytes", "split it");
    }
    if (got < block.size()) return text;
  }
}

Tensor load_idx(const std::filesystem::path& path) {
  const std::string file = read_file(path);
  const Payload whole(path, "IDX", file);
  if (file.size() < 4 || file[0] != 0 || file[1] != 0) {
    whole.corrupt("two zero bytes, a type and a rank", str_cat(file.size(), " other bytes"));
  }
  const auto dtype = idx_dtype(static_cast<uint8_t>(file[2]));
  if (!dtype) whole.corrupt("a type of 8, 9, 11 to 14", std::to_string(file[2]));
  const auto rank = static_cast<size_t>(static_cast<uint8_t>(file[3]));
  if (rank < 1 || rank > 8 || file.size() < 4 + 4 * rank) {
    whole.corrupt("a rank of 1 to 8 and its dimensions", std::to_string(rank));
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < rank; ++i) {
    uint32_t dim = 0;
    for (size_t b = 0; b < 4; ++b) dim = dim << 8 | static_cast<uint8_t>(file[4 + 4 * i + b]);
    dims.push_back(dim);
  }
  const Payload payload(path, "IDX", std::string_view(file).substr(4 + 4 * rank));
  Tensor out = payload.tensor(*dtype, dims);
  reverse_elements(out);
  return out;
}

Tensor load_npy(const std::filesystem::path& path) {
  return parse_npy(path, read_file(path));
}

void save_npy(const Tensor& tensor, const std::filesystem::path& path) {
  const Tensor host = tensor.copy_to(CPUPlace());
  const auto known = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                  [&](const auto& entry) { return entry.second == host.dtype(); });
  if (known->first.empty()) {
    refuse(path, ErrorCode::kNotSupported, "NumPy has no such type", "any type but bfloat16",
           std::string(dtype_name(host.dtype())), "cast it to float32 first");
  }
  std::string header =
      str_cat("{'descr': '", known->first, "', 'fortran_order': False, 'shape': (",
              join(host.shape().dims(), ", "), host.shape().rank() == 1 ? ",), }" : "), }");
  const size_t prefix = kNpyMagic.size() + 4;
  header.append(kNpyAlignment - 1 - (prefix + header.size()) % kNpyAlignment, ' ');
  header.push_back('\n');
  std::ofstream file(path, std::ios::binary);
  file << kNpyMagic << '\x01' << '\0' << static_cast<char>(header.size() & 0xff)
       << static_cast<char>(header.size() >> 8) << header;
  file.write(reinterpret_cast<const char*>(host.raw()), static_cast<std::streamsize>(host.bytes()));
  if (!file.flush()) {
    refuse(path, ErrorCode::kInput, "the file cannot be written", "a writable path",
           std::strerror(errno), "check the folder, its permissions and the space left");
  }
}

}  // namespace fleet::fluid::data
