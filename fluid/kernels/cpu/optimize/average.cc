// Running sums of parameters, and parameters that go back part of their way.
#include "fluid/ops/optimize/average.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

constexpr int64_t kMaxSummands = 16384;

template <class T>
std::unique_ptr<Prepared> prepare_average(PrepareContext& context) {
  const auto attrs = context.attrs<AverageAccumulatesAttrs>();
  const Shape shape = context.in("param").shape;
  const int param = context.input("param");
  std::array<StatePositions, 3> sums;
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::string name = str_cat("sum_", i + 1);
    const ValueSpec& spec = context.in("in_" + name);
    context.require(spec.shape == shape && spec.dtype == dtype_of<T>(), "in_" + name,
                    shape.to_string(), spec.shape.to_string());
    sums[i] = {context.input("in_" + name),
               context.set_output("out_" + name, shape, dtype_of<T>())};
  }
  std::array<StatePositions, 3> counts;
  const std::array<const char*, 3> names = {"num_accumulates", "old_num_accumulates",
                                            "num_updates"};
  for (size_t i = 0; i < counts.size(); ++i) {
    counts[i] = {context.input(str_cat("in_", names[i])),
                 context.set_output(str_cat("out_", names[i]), Shape{1}, DType::kInt64)};
  }
  const auto n = static_cast<size_t>(shape.numel());
  return make_prepared([=](const KernelContext& c) {
    const T* p = c.in<T>(param);
    const StateArrays<T> s1(c, sums[0]);
    const StateArrays<T> s2(c, sums[1]);
    const StateArrays<T> s3(c, sums[2]);
    int64_t count = *c.in<int64_t>(counts[0].in) + 1;
    int64_t old_count = *c.in<int64_t>(counts[1].in);
    const int64_t updates = *c.in<int64_t>(counts[2].in) + 1;
    const bool moves = updates % kMaxSummands == 0;
    const auto wanted = static_cast<int64_t>(static_cast<double>(updates) *
                                             static_cast<double>(attrs.average_window));
    const bool full =
        count >= attrs.min_average_window && count >= std::min(attrs.max_average_window, wanted);
    FLEET_EACH_ALONE
    for (size_t i = 0; i < n; ++i) {
      const T first = s1.from[i] + p[i];
      const T second = moves ? s2.from[i] + first : s2.from[i];
      const T rest = moves ? T{} : first;
      s3.to[i] = full ? rest + second : s3.from[i];
      s1.to[i] = full ? T{} : rest;
      s2.to[i] = full ? T{} : second;
    }
    if (full) {
      old_count = count;
      count = 0;
    }
    *c.out<int64_t>(counts[0].out) = count;
    *c.out<int64_t>(counts[1].out) = old_count;
    *c.out<int64_t>(counts[2].out) = updates;
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_lookahead(PrepareContext& context) {
  const auto attrs = context.attrs<LookaheadAttrs>();
  const StatePositions param = state<T>(context, "Param", "ParamOut");
  const StatePositions slow = state<T>(context, "SlowParam", "SlowParamOut");
  const StatePositions step = {scalar_input<int64_t>(context, "Step"),
                               context.set_output("StepOut", Shape{1}, DType::kInt64)};
  const auto n = static_cast<size_t>(context.in("Param").shape.numel());
  const T alpha = static_cast<T>(attrs.alpha);
  return make_prepared([=](const KernelContext& c) {
    const StateArrays<T> p(c, param);
    const StateArrays<T> s(c, slow);
    const int64_t now = *c.in<int64_t>(step.in) + 1;
    *c.out<int64_t>(step.out) = now;
    if (now % attrs.k != 0) {
      if (p.to != p.from) std::copy_n(p.from, n, p.to);
      if (s.to != s.from) std::copy_n(s.from, n, s.to);
      return;
    }
    FLEET_EACH_ALONE
    for (size_t i = 0; i < n; ++i) s.to[i] = s.from[i] + (p.from[i] - s.from[i]) * alpha;
    std::copy_n(s.to, n, p.to);
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
