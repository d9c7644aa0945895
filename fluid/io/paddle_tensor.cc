#include "fluid/io/paddle_tensor.h"

#include <cstring>

#include "base/strings.h"
#include "fluid/io/paddle_wire.h"

namespace fleet::fluid {
namespace {

using paddle::Bytes;
using paddle::Field;
using paddle::take;

constexpr uint64_t kMaxLevels = 16;
constexpr size_t kMaxRank = Shape::kMaxRank;

Status corrupt(std::string what, std::string expected, std::string got) {
  return {ErrorCode::kCorruptFile,
          {.what = std::move(what),
           .where = "a tensor file of Paddle",
           .expected = std::move(expected),
           .got = std::move(got),
           .fix = "save the model again"}};
}

Status too_short() {
  return corrupt("the file ends inside a value", "the rest of it", "the end");
}

// The version in front of each part.
Status take_version(Bytes& bytes) {
  const auto version = take<uint32_t>(bytes);
  if (!version) return too_short();
  if (*version != 0) return corrupt("unknown format version", "0", str_cat(*version));
  return {};
}

struct Description {
  DType dtype = DType::kFloat32;
  Shape shape;
  size_t bytes = 0;
};

Result<Description> describe(Bytes message) {
  const auto fields = paddle::fields_of(message);
  std::vector<int64_t> dims;
  std::optional<DType> dtype;
  bool readable = fields.has_value();
  for (const Field& field : fields.value_or(std::vector<Field>())) {
    if (field.number == 1 && !field.has_bytes) dtype = paddle::dtype_of_code(field.value);
    if (field.number == 2) readable = readable && paddle::append_numbers(field, dims);
  }
  if (!readable || !dtype) {
    return corrupt("a tensor's description is not readable", "an element type and dimensions",
                   "something else");
  }
  if (dims.size() > kMaxRank) {
    return corrupt("too many dimensions", str_cat("at most ", kMaxRank), str_cat(dims.size()));
  }
  uint64_t bytes = dtype_size(*dtype);
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) {
      return corrupt("a tensor's dimensions are impossible", "a size that fits", str_cat(dim));
    }
  }
  return Description{*dtype, Shape(dims), static_cast<size_t>(bytes)};
}

// From "u32 0; i32 n" on.
Result<Tensor> take_tensor(Bytes& bytes) {
  if (const Status version = take_version(bytes); !version.ok()) return version;
  const auto size = take<int32_t>(bytes);
  if (!size || *size < 0 || static_cast<size_t>(*size) > bytes.size()) return too_short();
  const auto message = bytes.first(static_cast<size_t>(*size));
  bytes = bytes.subspan(static_cast<size_t>(*size));
  const auto described = describe(message);
  if (!described.ok()) return described.status();
  const Description& what = described.value();
  if (what.bytes > bytes.size()) return too_short();
  Tensor tensor(what.dtype, what.shape);
  if (what.bytes != 0) std::memcpy(tensor.raw(), bytes.data(), what.bytes);
  bytes = bytes.subspan(what.bytes);
  return tensor;
}

Result<LoD> take_lod(Bytes& bytes) {
  const auto levels = take<uint64_t>(bytes);
  if (!levels) return too_short();
  if (*levels > kMaxLevels) {
    return corrupt("too many sequence levels", str_cat("at most ", kMaxLevels), str_cat(*levels));
  }
  LoD lod;
  for (uint64_t level = 0; level < *levels; ++level) {
    const auto size = take<uint64_t>(bytes);
    if (!size || *size % sizeof(uint64_t) != 0 || *size > bytes.size()) return too_short();
    lod.emplace_back(static_cast<size_t>(*size / sizeof(uint64_t)));
    std::vector<int64_t>& offsets = lod.back();
    if (*size != 0) std::memcpy(offsets.data(), bytes.data(), static_cast<size_t>(*size));
    bytes = bytes.subspan(static_cast<size_t>(*size));
    bool ascends = !offsets.empty() && offsets.front() == 0;
    for (size_t i = 1; i < offsets.size(); ++i) ascends = ascends && offsets[i - 1] <= offsets[i];
    if (!ascends) return corrupt("sequence offsets must ascend from 0", "0, …", "something else");
  }
  return lod;
}

// All of a tensor but its data.
void put_description(DType dtype, const Shape& shape, std::vector<std::byte>& out) {
  const auto code = paddle::code_of_dtype(dtype);
  if (!code) {
    throw_error(ErrorCode::kNotSupported,
                {.what = "Paddle's files have no such element type",
                 .where = "encode_paddle",
                 .expected = "bool, int8 to int64, uint8, float16, float32 or float64",
                 .got = std::string(dtype_name(dtype)),
                 .fix = "cast the variable, or save it in this library's own format"});
  }
  std::vector<std::byte> description;
  description.push_back(std::byte{0x08});
  paddle::put_varint(description, *code);
  for (const int64_t dim : shape.dims()) {
    description.push_back(std::byte{0x10});
    paddle::put_varint(description, static_cast<uint64_t>(dim));
  }
  paddle::put<uint32_t>(out, 0);
  paddle::put<int32_t>(out, static_cast<int32_t>(description.size()));
  out.insert(out.end(), description.begin(), description.end());
}

void put_tensor(const Tensor& tensor, std::vector<std::byte>& out) {
  put_description(tensor.dtype(), tensor.shape(), out);
  out.insert(out.end(), tensor.raw(), tensor.raw() + tensor.bytes());
}

}  // namespace

Result<Tensor> decode_paddle_tensor(Bytes& bytes) {
  if (const Status version = take_version(bytes); !version.ok()) return version;
  auto lod = take_lod(bytes);
  if (!lod.ok()) return lod.status();
  auto tensor = take_tensor(bytes);
  if (!tensor.ok() || lod.value().empty()) return tensor;
  const Shape& shape = tensor.value().shape();
  const int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  if (lod.value().back().back() != rows) {
    return corrupt("sequence offsets must end at the number of rows", str_cat(rows),
                   str_cat(lod.value().back().back()));
  }
  tensor.value().set_lod(std::move(lod.value()));
  return tensor;
}

Result<SelectedRows> decode_paddle_rows(Bytes& bytes) {
  if (const Status version = take_version(bytes); !version.ok()) return version;
  const auto count = take<uint64_t>(bytes);
  if (!count || *count > bytes.size() / sizeof(int64_t)) return too_short();
  SelectedRows rows;
  rows.rows.resize(static_cast<size_t>(*count));
  const size_t size = rows.rows.size() * sizeof(int64_t);
  if (size != 0) std::memcpy(rows.rows.data(), bytes.data(), size);
  bytes = bytes.subspan(size);
  const auto height = take<int64_t>(bytes);
  if (!height) return too_short();
  rows.height = *height;
  auto value = take_tensor(bytes);
  if (!value.ok()) return value.status();
  rows.value = std::move(value.value());
  const Shape& shape = rows.value.shape();
  const bool fits = shape.rank() > 0 && shape[0] >= static_cast<int64_t>(rows.rows.size());
  for (const int64_t row : rows.rows) {
    if (fits && row >= 0 && row < rows.height) continue;
    return corrupt("row numbers must fit the height and the values",
                   str_cat("0 to ", rows.height - 1), str_cat(row));
  }
  return rows;
}

void encode_paddle(const Tensor& tensor, std::vector<std::byte>& out) {
  paddle::put<uint32_t>(out, 0);
  paddle::put<uint64_t>(out, tensor.lod().size());
  for (const auto& level : tensor.lod()) {
    paddle::put<uint64_t>(out, level.size() * sizeof(uint64_t));
    for (const int64_t offset : level) paddle::put<int64_t>(out, offset);
  }
  put_tensor(tensor, out);
}

void encode_paddle_rows_begin(uint64_t count, std::vector<std::byte>& out) {
  paddle::put<uint32_t>(out, 0);
  paddle::put<uint64_t>(out, count);
}

void encode_paddle_rows_middle(int64_t height, DType dtype, const Shape& shape,
                               std::vector<std::byte>& out) {
  paddle::put<int64_t>(out, height);
  put_description(dtype, shape, out);
}

void encode_paddle(const SelectedRows& rows, std::vector<std::byte>& out) {
  encode_paddle_rows_begin(rows.rows.size(), out);
  for (const int64_t row : rows.rows) paddle::put<int64_t>(out, row);
  const Tensor& value = rows.value;
  encode_paddle_rows_middle(rows.height, value.dtype(), value.shape(), out);
  out.insert(out.end(), value.raw(), value.raw() + value.bytes());
}

}  // namespace fleet::fluid
