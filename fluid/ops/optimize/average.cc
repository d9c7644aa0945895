#include "fluid/ops/optimize/average.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

const std::vector<std::string> kSums = {"sum_1", "sum_2", "sum_3"};
const std::vector<std::string> kCounts = {"num_accumulates", "old_num_accumulates", "num_updates"};

void require_count(InferContext& context, const std::string& slot) {
  context.require_dtype(slot, DType::kInt64);
  const Shape& shape = context.input(slot).shape;
  context.require(shape.numel() == 1, slot, "one element", shape.to_string());
}

void infer_average(InferContext& context) {
  const VarDesc& param = context.input("param");
  for (const std::string& name : kSums) {
    const VarDesc& sum = context.input("in_" + name);
    context.require_dtype("in_" + name, param.dtype);
    context.require(sum.shape.compatible(param.shape), "in_" + name, param.shape.to_string(),
                    sum.shape.to_string());
    context.share("in_" + name, "out_" + name);
  }
  for (const std::string& name : kCounts) {
    require_count(context, "in_" + name);
    context.share("in_" + name, "out_" + name);
  }
}

void infer_lookahead(InferContext& context) {
  const VarDesc& param = context.input("Param");
  const VarDesc& slow = context.input("SlowParam");
  context.require_dtype("SlowParam", param.dtype);
  context.require(slow.shape.compatible(param.shape), "SlowParam", param.shape.to_string(),
                  slow.shape.to_string());
  require_count(context, "Step");
  const int64_t k = context.attrs<LookaheadAttrs>().k;
  context.require(k >= 1, "k", "at least 1", str_cat(k));
  for (const char* slot : {"Param", "SlowParam", "Step"}) context.share(slot, str_cat(slot, "Out"));
}

}  // namespace

void add_average_ops(OpTable& table) {
  std::vector<SlotSpec> inputs = {one("param")};
  std::vector<SlotSpec> outputs;
  for (const auto* names : {&kSums, &kCounts}) {
    for (const std::string& name : *names) {
      inputs.push_back(one("in_" + name));
      const SlotSpec out = one("out_" + name);
      outputs.push_back(names == &kCounts ? typed(out) : out);
    }
  }
  table.add(make_schema<AverageAccumulatesAttrs>("average_accumulates", std::move(inputs),
                                                 std::move(outputs), infer_average));
  table.add(make_schema<LookaheadAttrs>("lookahead", {one("Param"), one("SlowParam"), one("Step")},
                                        {one("ParamOut"), one("SlowParamOut"), one("StepOut")},
                                        infer_lookahead));
}

}  // namespace fleet::fluid
