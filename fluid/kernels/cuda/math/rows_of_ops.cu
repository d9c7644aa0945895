#include "fluid/kernels/cuda/math/reduce_loops.h"
#include "fluid/kernels/cuda/math/rows_of_ops_loops.h"
#include "fluid/kernels/cuda/update_batch_impl.h"
#include "fluid/kernels/cuda/work_list_impl.h"

namespace fleet::fluid::cuda {
namespace {

// f(block, n) for each block of each tensor.
template <class F>
__global__ void list_kernel(const __grid_constant__ WorkList<F> list) {
  for (int64_t block = blockIdx.x; block < list.blocks; block += gridDim.x) {
    const auto& tensor = list.tensors[tensor_of(list, block)];
    tensor.f(block - tensor.first_block, tensor.n);
  }
}

template <class F>
void put_list(RawStream stream, const char* name, WorkList<F>& list) {
  if (list.blocks > 0) launch(stream, name, list_kernel<F>, blocks_for(list.blocks), list);
  list.clear();
}

template <class T, bool divides>
struct ByNumber {
  const T* x;
  const T* number;
  T* out;
  __device__ void operator()(int64_t block, int64_t n) const {
    const int64_t begin = block * kElementsOfBlock;
    const int64_t end = begin + kElementsOfBlock < n ? begin + kElementsOfBlock : n;
    const T by = *number;
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      out[i] = divides ? x[i] / by : x[i] * by;
    }
  }
};

template <class T, bool divides>
class ByNumbers final : public UpdateBatch::List {
 public:
  bool is_full() const { return list_.is_full(); }
  void add(const ByNumber<T, divides>& each, int64_t n) {
    list_.add(each, n, blocks_of_elements(n));
  }
  void put(RawStream stream) override { put_list(stream, "by_number", list_); }

 private:
  WorkList<ByNumber<T, divides>> list_;
};

// As ReduceByBlock, of part `block`.
template <class T>
struct PartOfSum {
  const T* x;
  T* out;
  int64_t length;
  __device__ void operator()(int64_t block, int64_t n) const {
    const int64_t first = block * length;
    const int64_t end = first + length < n ? first + length : n;
    T sum{};
    for (int64_t i = first + threadIdx.x; i < end; i += kThreads) sum += x[i];
    sum = sum_block(sum);
    if (threadIdx.x == 0) out[block] = sum;
  }
};

template <class T>
class Sums final : public UpdateBatch::List {
 public:
  bool is_full() const { return parts_.is_full(); }
  void add(const T* x, int64_t n, T* partial, T* out) {
    const ReduceParts parts = reduce_parts(sum_of_all(n));
    const bool whole = parts.count == 1;
    parts_.add({x, whole ? out : partial, parts.length}, n, parts.count);
    if (!whole) rest_.add({partial, out, parts.count}, parts.count, 1);
  }
  void put(RawStream stream) override {
    put_list(stream, "parts_of_sums", parts_);
    put_list(stream, "sums", rest_);
  }

 private:
  WorkList<PartOfSum<T>> parts_;
  WorkList<PartOfSum<T>> rest_;
};

template <class List, class... Arguments>
void join_row(const UpdateTarget& target, const Arguments&... arguments) {
  List& list = target.batch->list<List>(target.stream);
  list.add(arguments...);
  if (list.is_full() || !target.more_follow) target.batch->put(target.stream);
}

}  // namespace

template <class T>
void times_number(const UpdateTarget& target, const T* x, const T* number, T* out, int64_t n) {
  join_row<ByNumbers<T, false>>(target, ByNumber<T, false>{x, number, out}, n);
}
template <class T>
void over_number(const UpdateTarget& target, const T* x, const T* number, T* out, int64_t n) {
  join_row<ByNumbers<T, true>>(target, ByNumber<T, true>{x, number, out}, n);
}
template <class T>
void sum_all(const UpdateTarget& target, const T* x, int64_t n, T* partial, T* out) {
  join_row<Sums<T>>(target, x, n, partial, out);
}

#define FLEET_INSTANTIATE(T)                                                        \
  template void times_number(const UpdateTarget&, const T*, const T*, T*, int64_t); \
  template void over_number(const UpdateTarget&, const T*, const T*, T*, int64_t);  \
  template void sum_all(const UpdateTarget&, const T*, int64_t, T*, T*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
