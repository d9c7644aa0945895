// Sums of several tensors, by the tree of base/shard_tree.h.
#include <algorithm>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {
namespace {

// As many as one launch takes, a power of two, are a subtree: their sums are summed in turn.
template <class T>
void sum_all(Stream& stream, std::vector<const T*> arrays, T* out, int64_t n) {
  const size_t blocks = (arrays.size() + kMaxSummands - 1) / kMaxSummands;
  T* sums = blocks > 1 ? stream.scratch<T>(static_cast<int64_t>(blocks) * n) : out;
  std::vector<const T*> of_blocks;
  for (size_t first = 0; first < arrays.size(); first += kMaxSummands) {
    Summands<T> summands;
    summands.count = static_cast<int>(std::min<size_t>(kMaxSummands, arrays.size() - first));
    std::copy_n(arrays.begin() + static_cast<std::ptrdiff_t>(first), summands.count,
                summands.arrays);
    T* to = sums + static_cast<int64_t>(of_blocks.size()) * n;
    tree_sum<T>(stream.raw(), summands, to, n);
    of_blocks.push_back(to);
  }
  if (blocks > 1) {
    Summands<T> summands;
    summands.count = static_cast<int>(blocks);
    std::copy(of_blocks.begin(), of_blocks.end(), summands.arrays);
    tree_sum<T>(stream.raw(), summands, out, n);
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_sum(PrepareContext& context) {
  const size_t count = context.input_count("X");
  if (count > static_cast<size_t>(kMaxSummands) * kMaxSummands) return nullptr;
  const Shape shape = context.in("X").shape;
  for (size_t i = 1; i < count; ++i) {
    const ValueSpec& x = context.in("X", i);
    context.require(x.kind == ValueKind::kTensor && x.dtype == dtype_of<T>() && x.shape == shape,
                    "X", str_cat("equal shapes and types, ", shape), x.shape.to_string());
  }
  const int64_t n = shape.numel();
  const int first = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    std::vector<const T*> arrays;
    for (size_t i = 0; i < count; ++i) arrays.push_back(c.in<T>(first + static_cast<int>(i)));
    sum_all<T>(stream_of(c), std::move(arrays), c.out<T>(out), n);
  });
}

}  // namespace

void register_sum(KernelTable& table) {
  cpu::for_types<float, double, int64_t>([&table]<class T>(std::type_identity<T>) {
    table.add_last("sum", DeviceKind::kCuda, dtype_of<T>(), {"tree", prepare_sum<T>});
  });
}

}  // namespace fleet::fluid::cuda
