#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/optimize/averages_loops.h"

namespace fleet::fluid::cuda {
namespace {

using functions::AverageCounts;
using functions::AverageUpdate;

template <class T>
__device__ AverageUpdate update_of(const AverageArrays<T>& args) {
  const AverageCounts before = {*args.counts[0].from, *args.counts[1].from, *args.counts[2].from};
  return AverageUpdate::after(before, args.window);
}

template <class T>
struct AverageLoop {
  AverageArrays<T> args;
  __device__ void operator()(int64_t i) const {
    T sums[3];
    for (int k = 0; k < 3; ++k) sums[k] = args.sums[k].from[i];
    update_of(args).add(args.param[i], sums);
    for (int k = 0; k < 3; ++k) args.sums[k].to[i] = sums[k];
  }
};
// Behind the loop, all of whose threads read the counts.
template <class T>
struct AverageCountsLoop {
  AverageArrays<T> args;
  __device__ void operator()(int64_t) const {
    const AverageCounts next = update_of(args).next;
    *args.counts[0].to = next.count;
    *args.counts[1].to = next.old_count;
    *args.counts[2].to = next.updates;
  }
};

template <class T>
struct LookaheadLoop {
  LookaheadArrays<T> args;
  __device__ void operator()(int64_t i) const {
    const T fast = args.param.from[i];
    T slow = args.slow.from[i];
    const bool meets = (*args.step.from + 1) % args.k == 0;
    if (meets) slow = slow + (fast - slow) * args.alpha;
    args.slow.to[i] = slow;
    args.param.to[i] = meets ? slow : fast;
  }
};

}  // namespace

template <class T>
void accumulate_average(RawStream stream, const AverageArrays<T>& args, int64_t n) {
  launch_each(stream, "accumulate_average", n, AverageLoop<T>{args});
  launch_each(stream, "accumulate_average", 1, AverageCountsLoop<T>{args});
}

template <class T>
void lookahead(RawStream stream, const LookaheadArrays<T>& args, int64_t n) {
  launch_each(stream, "lookahead", n, LookaheadLoop<T>{args});
  scale<int64_t>(stream, {.scale = 1, .bias = 1}, args.step.from, args.step.to, 1);
}

#define FLEET_INSTANTIATE(T)                                                     \
  template void accumulate_average(RawStream, const AverageArrays<T>&, int64_t); \
  template void lookahead(RawStream, const LookaheadArrays<T>&, int64_t)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
