// Dense tensors.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "fluid/core/dtype.h"
#include "fluid/core/place.h"
#include "fluid/core/shape.h"

namespace fleet::fluid {

// How the elements are ordered in memory. kPlain is row-major. kBlocked is that of images
// in blocks of channels (fluid/kernels/image_layout.h); only kernels that asked for it see it.
enum class Layout : uint8_t { kPlain, kBlocked };

// Sequence structure: per level, ascending offsets, the first 0. The last level's last offset is
// the number of rows.
using LoD = std::vector<std::vector<int64_t>>;

// A handle to typed memory; copies share it. Reading from several threads is safe, writing is the
// business of whoever owns the step. A default-made tensor has no memory.
class Tensor {
 public:
  Tensor() = default;
  // Uninitialised memory for every element; throws UsageError when a dimension is unknown.
  Tensor(DType dtype, const Shape& shape, Place place = CPUPlace());
  // A view of memory that `buffer` keeps alive, from byte `offset` on.
  Tensor(DType dtype, const Shape& shape, Buffer buffer, size_t offset, Place place = CPUPlace());

  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);
  template <class T>
  static Tensor scalar(T value) {
    return from(std::vector<T>{value}, Shape{1});
  }
  static Tensor zeros(DType dtype, const Shape& shape);

  bool initialized() const { return static_cast<bool>(buffer_); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Place& place() const { return place_; }
  int64_t numel() const { return numel_; }
  size_t bytes() const { return static_cast<size_t>(numel_) * dtype_size(dtype_); }

  std::byte* raw() { return buffer_.data() + offset_; }
  const std::byte* raw() const { return buffer_.data() + offset_; }
  // Typed access; throws ProgramError when T is not the element type, or the tensor is on a device,
  // whose memory its kernels read (through raw()): copy_to(CPUPlace()) has the values.
  template <class T>
  T* data() {
    check_dtype(dtype_of<T>());
    return reinterpret_cast<T*>(raw());
  }
  template <class T>
  const T* data() const {
    check_dtype(dtype_of<T>());
    return reinterpret_cast<const T*>(raw());
  }
  template <class T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<size_t>(numel_)};
  }
  // The one element of a tensor that has one, converted from whatever its type is.
  template <class T>
  T item() const {
    return static_cast<T>(item_as_double());
  }

  // Makes this tensor hold `shape` elements of `dtype`, keeping its memory when that is large
  // enough and not shared; the contents are then unspecified.
  void reset(DType dtype, const Shape& shape, Place place = CPUPlace());

  // Same memory, other shape with as many elements.
  Tensor reshaped(const Shape& shape) const;
  // Same memory, rows [begin, end) of the first dimension; the LoD is dropped.
  Tensor rows(int64_t begin, int64_t end) const;
  // Own memory, same contents.
  Tensor clone() const;
  // Own memory of a place, same contents; between host and device too.
  Tensor copy_to(const Place& place) const;
  // This tensor when it is in host memory, else a copy of it there.
  Tensor on_host() const;
  // Copies the elements of a tensor of the same type and element count into this memory, wherever
  // both are.
  void copy_from(const Tensor& source);

  const Buffer& buffer() const { return buffer_; }
  size_t offset() const { return offset_; }

  const LoD& lod() const;
  void set_lod(LoD lod);
  // The same sequence structure as another tensor's, not copied.
  void share_lod(const Tensor& other) { lod_ = other.lod_; }

  Layout layout() const { return layout_; }
  // Says how the elements lie; moves none.
  void set_layout(Layout layout) { layout_ = layout; }

  std::string to_string(int64_t max_elements = 16) const;

 private:
  void check_dtype(DType wanted) const {
    if (wanted != dtype_) throw_wrong_dtype(wanted);
    if (!place_.is_cpu()) throw_on_device();
  }
  [[noreturn]] void throw_wrong_dtype(DType wanted) const;
  [[noreturn]] void throw_on_device() const;
  double item_as_double() const;

  DType dtype_ = DType::kFloat32;
  Place place_;
  Shape shape_;
  int64_t numel_ = 0;
  Buffer buffer_;
  size_t offset_ = 0;
  std::shared_ptr<const LoD> lod_;
  Layout layout_ = Layout::kPlain;
};

// Memory of a place; for a device that this build cannot use, an error that says so.
Allocator& allocator_of(const Place& place);

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape) {
  Tensor source(dtype_of<T>(), shape);
  if (static_cast<int64_t>(values.size()) != source.numel()) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "the values do not fill the shape",
                                            .where = "Tensor::from",
                                            .expected = shape.to_string(),
                                            .got = str_cat(values.size(), " values"),
                                            .fix = "pass one value per element"});
  }
  T* out = source.data<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return source;
}

}  // namespace fleet::fluid
