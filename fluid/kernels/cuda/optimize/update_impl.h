// Updates for .cu files: a loop is called with an element's number and its gradient. Updates of
// many tensors are one kernel.
#pragma once

#include "fluid/kernels/cuda/row_sums_impl.h"
#include "fluid/kernels/cuda/update_batch_impl.h"
#include "fluid/kernels/cuda/work_list_impl.h"

namespace fleet::fluid::cuda {

// F is a tensor's update: f(i) updates element i and gives what it wrote into the parameter.
// f.begin() is called before by each thread, and f.finish() once when all elements are done, where
// F has them.
template <class F>
struct UpdateList : WorkList<F> {
  uint32_t* nonfinite = nullptr;
};

// *nonfinite, in host memory, becomes 1 when anything that was written is not finite, and else is
// left alone. Blocks may write the same 1.
template <class F>
__global__ void update_kernel(const __grid_constant__ UpdateList<F> list) {
  int found = 0;
  for (int64_t block = blockIdx.x; block < list.blocks; block += gridDim.x) {
    const auto& tensor = list.tensors[tensor_of(list, block)];
    const int64_t begin = (block - tensor.first_block) * kElementsOfBlock;
    const int64_t end = begin + kElementsOfBlock < tensor.n ? begin + kElementsOfBlock : tensor.n;
    F f = tensor.f;
    if constexpr (requires { f.begin(); }) f.begin();
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      if (!isfinite(f(i))) found = 1;
    }
  }
  if (__syncthreads_or(found) != 0 && threadIdx.x == 0) {
    *static_cast<volatile uint32_t*>(list.nonfinite) = 1;
  }
}

template <class F>
constexpr bool kFinishes = requires(const F& f) {
  f.finish();
};

template <class F>
__global__ void finish_kernel(const __grid_constant__ UpdateList<F> list) {
  for (int k = static_cast<int>(threadIdx.x); k < list.count; k += kThreads) {
    list.tensors[k].f.finish();
  }
}

template <class F>
class Updates final : public UpdateBatch::List {
 public:
  void add(const char* name, int64_t n, const F& f, uint32_t* nonfinite) {
    name_ = name;
    list_.nonfinite = nonfinite;
    list_.add(f, n, blocks_of_elements(n));
  }
  bool is_full() const { return list_.is_full(); }

  void put(RawStream stream) override {
    if (list_.blocks > 0) launch(stream, name_, update_kernel<F>, blocks_for(list_.blocks), list_);
    if constexpr (kFinishes<F>) {
      if (list_.count > 0) launch(stream, name_, finish_kernel<F>, 1U, list_);
    }
    list_.clear();
  }

 private:
  const char* name_ = "";
  UpdateList<F> list_;
};

template <class T>
struct DenseElements {
  const T* values;
  __device__ T operator()(int64_t i) const { return values[i]; }
};

// Of rows: zero in those that are not named.
template <class T>
struct RowElements {
  GradientArrays<T> gradient;
  __device__ T operator()(int64_t i) const {
    const int64_t width = gradient.rows.width;
    const int32_t group = gradient.place[i / width];
    return group < 0 ? T{} : sum_of_group(gradient.rows, group, i % width);
  }
};

// A loop's begin() and finish(), where it has them.
template <class Loop>
struct AroundLoop {
  Loop loop;
  __device__ void begin() {
    if constexpr (requires { loop.begin(); }) loop.begin();
  }
  __device__ void finish() const requires kFinishes<Loop> { loop.finish(); }
};

template <class Loop, class Elements>
struct WithGradient : AroundLoop<Loop> {
  Elements gradient;
  __device__ auto operator()(int64_t i) const { return this->loop(i, gradient(i)); }
};

// Number i of the elements of rows that are named.
template <class Loop, class T>
struct WithNamedRows : AroundLoop<Loop> {
  RowValues<T> rows;
  __device__ auto operator()(int64_t i) const {
    const int64_t group = i / rows.width;
    const int64_t k = i % rows.width;
    return this->loop(rows.groups.rows[group] * rows.width + k, sum_of_group(rows, group, k));
  }
};

// put(n, f): f is to be called for each i below n, which together are the elements that the update
// changes.
template <class T, class Loop, class Put>
void with_gradient(const GradientArrays<T>& gradient, int64_t n, const Loop& loop, const Put& put) {
  if (!gradient.sparse) {
    put(n, WithGradient<Loop, DenseElements<T>>{{loop}, {gradient.values}});
  } else if (gradient.place != nullptr) {
    put(n, WithGradient<Loop, RowElements<T>>{{loop}, {gradient}});
  } else {
    put(gradient.rows.groups.count * gradient.rows.width,
        WithNamedRows<Loop, T>{{loop}, gradient.rows});
  }
}

// Rows are updated at once: their numbers are in memory that the next update uses, too.
template <class T, class Loop>
void launch_update(const UpdateTarget& target, const char* name, const GradientArrays<T>& gradient,
                   int64_t n, const Loop& loop) {
  with_gradient(gradient, n, loop, [&]<class F>(int64_t count, const F& each) {
    if (target.batch == nullptr || gradient.sparse) {
      Updates<F> alone;
      alone.add(name, count, each, target.nonfinite);
      alone.put(target.stream);
    } else {
      auto& updates = target.batch->list<Updates<F>>(target.stream);
      updates.add(name, count, each, target.nonfinite);
      if (updates.is_full()) updates.put(target.stream);
    }
  });
  if (target.batch != nullptr && !target.more_follow) target.batch->put(target.stream);
}

}  // namespace fleet::fluid::cuda
