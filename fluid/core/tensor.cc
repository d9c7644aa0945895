#include "fluid/core/tensor.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "fluid/core/device_memory.h"

namespace fleet::fluid {
namespace {

// Calls f with a value of the element's C++ type; 16-bit floats have none.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool:
      return f(bool{});
    case DType::kUInt8:
      return f(uint8_t{});
    case DType::kInt8:
      return f(int8_t{});
    case DType::kInt16:
      return f(int16_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kInt64:
      return f(int64_t{});
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    default:
      throw_error(ErrorCode::kNotSupported, {.what = "this element type has no arithmetic",
                                             .where = std::string(dtype_name(dtype)),
                                             .expected = "a type of 32 or 64 bits, or an integer",
                                             .got = {},
                                             .fix = "cast the tensor first"});
  }
}

void check_known(const Shape& shape) {
  if (shape.known()) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "a tensor needs known dimensions",
                                            .where = "Tensor",
                                            .expected = "no dimension of -1",
                                            .got = shape.to_string(),
                                            .fix = "put the real number of rows in place of -1"});
}

void copy_bytes(void* to, const Place& to_place, const void* from, const Place& from_place,
                size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (to_place.is_cpu() && from_place.is_cpu()) {
    std::memmove(to, from, bytes);
  } else {
    copy_device_memory(to, to_place, from, from_place, bytes);
  }
}

}  // namespace

Allocator& allocator_of(const Place& place) {
  return place.is_cpu() ? host_allocator() : device_allocator(place);
}

Tensor::Tensor(DType dtype, const Shape& shape, Place place) {
  reset(dtype, shape, place);
}

Tensor::Tensor(DType dtype, const Shape& shape, Buffer buffer, size_t offset, Place place)
    : dtype_(dtype),
      place_(place),
      shape_(shape),
      numel_(shape.numel()),
      buffer_(std::move(buffer)),
      offset_(offset) {
  check_known(shape);
}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  std::memset(tensor.raw(), 0, tensor.bytes());
  return tensor;
}

void Tensor::reset(DType dtype, const Shape& shape, Place place) {
  check_known(shape);
  const int64_t numel = shape.numel();
  const size_t bytes = static_cast<size_t>(numel) * dtype_size(dtype);
  const bool keep =
      buffer_ && place == place_ && buffer_.unique() && offset_ == 0 && buffer_.size() >= bytes;
  if (!keep) {
    buffer_ = Buffer(bytes, allocator_of(place));
    offset_ = 0;
  }
  dtype_ = dtype;
  place_ = place;
  shape_ = shape;
  numel_ = numel;
  lod_.reset();
  layout_ = Layout::kPlain;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.numel() != numel_) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "a reshape must keep the number of elements",
                                            .where = "Tensor::reshaped",
                                            .expected = str_cat(numel_, " elements"),
                                            .got = shape.to_string(),
                                            .fix = "choose dimensions with the same product"});
  }
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  if (shape_.rank() == 0 || begin < 0 || end < begin || end > shape_[0]) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "no such rows",
                                              .where = "Tensor::rows",
                                              .expected = "a range inside " + shape_.to_string(),
                                              .got = str_cat("[", begin, ", ", end, ")"),
                                              .fix = "keep the range inside the first dimension"});
  }
  Tensor view = *this;
  const auto row_bytes = static_cast<size_t>(shape_.numel(1, shape_.rank())) * dtype_size(dtype_);
  view.shape_.set(0, end - begin);
  view.numel_ = view.shape_.numel();
  view.offset_ += static_cast<size_t>(begin) * row_bytes;
  view.lod_.reset();
  return view;
}

Tensor Tensor::clone() const {
  return copy_to(place_);
}

Tensor Tensor::copy_to(const Place& place) const {
  Tensor copy = *this;
  copy.buffer_ = Buffer(bytes(), allocator_of(place));
  copy.offset_ = 0;
  copy.place_ = place;
  copy_bytes(copy.raw(), place, raw(), place_, bytes());
  return copy;
}

Tensor Tensor::on_host() const {
  return place_.is_cpu() ? *this : copy_to(CPUPlace());
}

void Tensor::copy_from(const Tensor& source) {
  if (source.dtype_ != dtype_ || source.numel_ != numel_) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "a copy needs the same type and number of elements",
                 .where = "Tensor::copy_from",
                 .expected = str_cat(dtype_name(dtype_), shape_),
                 .got = str_cat(dtype_name(source.dtype_), source.shape_),
                 .fix = "reshape or cast the source"});
  }
  copy_bytes(raw(), place_, source.raw(), source.place_, bytes());
}

const LoD& Tensor::lod() const {
  static const LoD kNone;
  return lod_ ? *lod_ : kNone;
}

void Tensor::set_lod(LoD lod) {
  lod_ = lod.empty() ? nullptr : std::make_shared<const LoD>(std::move(lod));
}

std::string Tensor::to_string(int64_t max_elements) const {
  if (initialized() && !place_.is_cpu()) return copy_to(CPUPlace()).to_string(max_elements);
  std::ostringstream out;
  out << dtype_name(dtype_) << shape_ << " {";
  if (initialized()) {
    with_type(dtype_, [&](auto zero) {
      const auto* elements = reinterpret_cast<const decltype(zero)*>(raw());
      for (int64_t i = 0; i < std::min(numel_, max_elements); ++i) {
        out << (i == 0 ? "" : ", ") << shortest(static_cast<double>(elements[i]));
      }
    });
    if (numel_ > max_elements) out << ", …";
  }
  out << "}";
  return std::move(out).str();
}

void Tensor::throw_wrong_dtype(DType wanted) const {
  throw_error(ErrorCode::kDTypeMismatch, {.what = "the tensor holds another element type",
                                          .where = "Tensor" + shape_.to_string(),
                                          .expected = std::string(dtype_name(wanted)),
                                          .got = std::string(dtype_name(dtype_)),
                                          .fix = "read it with its own type, or cast it"});
}

void Tensor::throw_on_device() const {
  throw_error(ErrorCode::kInvalidArgument, {.what = "the tensor's elements are on a device",
                                            .where = "Tensor" + shape_.to_string(),
                                            .expected = "cpu",
                                            .got = place_.to_string(),
                                            .fix = "read those of copy_to(CPUPlace())"});
}

double Tensor::item_as_double() const {
  if (!initialized() || numel_ != 1) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "item() needs exactly one element",
                                            .where = "Tensor::item",
                                            .expected = "[1]",
                                            .got = shape_.to_string(),
                                            .fix = "read values() instead"});
  }
  if (!place_.is_cpu()) return copy_to(CPUPlace()).item_as_double();
  return with_type(dtype_, [this](auto zero) {
    decltype(zero) value;
    std::memcpy(&value, raw(), sizeof value);
    return static_cast<double>(value);
  });
}

}  // namespace fleet::fluid
