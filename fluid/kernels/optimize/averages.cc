#include "fluid/kernels/optimize/averages.h"

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/ops/optimize/average.h"

namespace fleet::fluid {

AverageSums average_sums_of(PrepareContext& context, DType dtype) {
  const auto attrs = context.attrs<AverageAccumulatesAttrs>();
  const Shape shape = context.in("param").shape;
  AverageSums average{.window = {.average_window_rate = static_cast<double>(attrs.average_window),
                                 .min_average_window = attrs.min_average_window,
                                 .max_average_window = attrs.max_average_window},
                      .n = shape.numel(),
                      .param = context.input("param")};
  for (size_t i = 0; i < average.sums.size(); ++i) {
    const std::string name = str_cat("sum_", i + 1);
    average.sums[i] = {input_like(context, str_cat("in_", name).c_str(), "param"),
                       context.set_output(str_cat("out_", name), shape, dtype)};
  }
  const std::array<const char*, 3> names = {"num_accumulates", "old_num_accumulates",
                                            "num_updates"};
  for (size_t i = 0; i < names.size(); ++i) {
    average.counts[i] = {scalar_input<int64_t>(context, str_cat("in_", names[i]).c_str()),
                         context.set_output(str_cat("out_", names[i]), Shape{1}, DType::kInt64)};
  }
  return average;
}

LookaheadStep lookahead_of(PrepareContext& context, DType dtype) {
  const auto attrs = context.attrs<LookaheadAttrs>();
  const Shape shape = context.in("Param").shape;
  return {
      .alpha = attrs.alpha,
      .k = attrs.k,
      .n = shape.numel(),
      .param = {state_input(context, "Param", dtype), context.set_output("ParamOut", shape, dtype)},
      .slow = {state_input(context, "SlowParam", dtype),
               context.set_output("SlowParamOut", shape, dtype)},
      .step = {scalar_input<int64_t>(context, "Step"),
               context.set_output("StepOut", Shape{1}, DType::kInt64)}};
}

}  // namespace fleet::fluid
