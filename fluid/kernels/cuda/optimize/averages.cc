// Running sums of parameters, and parameters that go back part of their way.
#include "fluid/kernels/optimize/averages.h"

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/optimize/averages_loops.h"
#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
StateArrays<T> arrays_at(const KernelContext& c, const InAndOut& at) {
  return {c.in<T>(at.in), c.out<T>(at.out)};
}

template <class T>
std::unique_ptr<Prepared> prepare_average(PrepareContext& context) {
  const AverageSums a = average_sums_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    AverageArrays<T> args{.window = a.window, .param = c.in<T>(a.param)};
    for (size_t i = 0; i < a.sums.size(); ++i) {
      args.sums[i] = arrays_at<T>(c, a.sums[i]);
      args.counts[i] = arrays_at<int64_t>(c, a.counts[i]);
    }
    accumulate_average<T>(stream_of(c).raw(), args, a.n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_lookahead(PrepareContext& context) {
  const LookaheadStep l = lookahead_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const LookaheadArrays<T> args{.alpha = static_cast<T>(l.alpha),
                                  .k = l.k,
                                  .param = arrays_at<T>(c, l.param),
                                  .slow = arrays_at<T>(c, l.slow),
                                  .step = arrays_at<int64_t>(c, l.step)};
    lookahead<T>(stream_of(c).raw(), args, l.n);
  });
}

}  // namespace

// Averages are listed under the type of the counts, which the op's first output has.
void register_averages(KernelTable& table) {
  const auto prepare = [](PrepareContext& context) -> std::unique_ptr<Prepared> {
    const DType dtype = context.in("param").dtype;
    if (dtype == DType::kFloat32) return prepare_average<float>(context);
    return dtype == DType::kFloat64 ? prepare_average<double>(context) : nullptr;
  };
  table.add_last("average_accumulates", DeviceKind::kCuda, DType::kInt64,
                 {.name = "loop", .prepare = prepare});
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("lookahead", DeviceKind::kCuda, dtype_of<T>(),
                   {.name = "loop", .prepare = prepare_lookahead<T>});
  });
}

}  // namespace fleet::fluid::cuda
