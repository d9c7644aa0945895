// Running sums of parameters, and parameters that go back part of their way.
#include <algorithm>

#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/kernels/optimize/averages.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_average(PrepareContext& context) {
  const AverageSums a = average_sums_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const auto count = [&](size_t i) { return *c.in<int64_t>(a.counts[i].in); };
    const auto update = functions::AverageUpdate::after({count(0), count(1), count(2)}, a.window);
    const T* p = c.in<T>(a.param);
    const StateArrays<T> s1(c, a.sums[0]);
    const StateArrays<T> s2(c, a.sums[1]);
    const StateArrays<T> s3(c, a.sums[2]);
    c.tiles().split(a.n, 4, [&](int64_t begin, int64_t end) {
      FLEET_EACH_ALONE
      for (int64_t i = begin; i < end; ++i) {
        T sums[] = {s1.from[i], s2.from[i], s3.from[i]};
        update.add(p[i], sums);
        s1.to[i] = sums[0];
        s2.to[i] = sums[1];
        s3.to[i] = sums[2];
      }
    });
    *c.out<int64_t>(a.counts[0].out) = update.next.count;
    *c.out<int64_t>(a.counts[1].out) = update.next.old_count;
    *c.out<int64_t>(a.counts[2].out) = update.next.updates;
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_lookahead(PrepareContext& context) {
  const LookaheadStep l = lookahead_of(context, dtype_of<T>());
  const T alpha = static_cast<T>(l.alpha);
  return make_prepared([=](const KernelContext& c) {
    const StateArrays<T> p(c, l.param);
    const StateArrays<T> s(c, l.slow);
    const int64_t now = *c.in<int64_t>(l.step.in) + 1;
    *c.out<int64_t>(l.step.out) = now;
    if (now % l.k != 0) {
      const size_t bytes = static_cast<size_t>(l.n) * sizeof(T);
      if (p.to != p.from) copy_in_tiles(c.tiles(), p.from, p.to, bytes);
      if (s.to != s.from) copy_in_tiles(c.tiles(), s.from, s.to, bytes);
      return;
    }
    c.tiles().split(l.n, 2, [&](int64_t begin, int64_t end) {
      FLEET_EACH_ALONE
      for (int64_t i = begin; i < end; ++i) s.to[i] = s.from[i] + (p.from[i] - s.from[i]) * alpha;
      std::copy(s.to + begin, s.to + end, p.to + begin);
    });
  });
}

}  // namespace

// Listed under the type of the counts, which the op's first output has.
void register_average(KernelTable& table) {
  const auto prepare = [](PrepareContext& context) -> std::unique_ptr<Prepared> {
    const DType dtype = context.in("param").dtype;
    if (dtype == DType::kFloat32) return prepare_average<float>(context);
    return dtype == DType::kFloat64 ? prepare_average<double>(context) : nullptr;
  };
  table.add_last("average_accumulates", DeviceKind::kCpu, DType::kInt64,
                 {.name = "loop", .prepare = prepare});
  add_update<float>(table, "lookahead", prepare_lookahead<float>);
  add_update<double>(table, "lookahead", prepare_lookahead<double>);
}

}  // namespace fleet::fluid::cpu
