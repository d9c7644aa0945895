#include "fluid/kernels/accumulate.h"

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

template <class T>
void add_elements(const Tiles& tiles, const Tensor& from, Tensor& to) {
  const T* more = from.data<T>();
  T* sum = to.data<T>();
  tiles.split(to.numel(), 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum[i] += more[i];
  });
}

}  // namespace

void accumulate(const Tensor& from, Tensor& to, const Tiles& tiles) {
  if (!from.initialized()) return;
  if (!to.initialized()) {
    to = from.clone();
  } else if (from.dtype() != to.dtype() || from.numel() != to.numel()) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "parts of a sum differ in shape",
                                            .where = "a sum of gradients",
                                            .expected = str_cat(dtype_name(to.dtype()), to.shape()),
                                            .got = str_cat(dtype_name(from.dtype()), from.shape()),
                                            .fix = "keep shapes the same in every iteration"});
  } else if (to.dtype() == DType::kFloat64) {
    add_elements<double>(tiles, from, to);
  } else {
    add_elements<float>(tiles, from, to);
  }
}

}  // namespace fleet::fluid
