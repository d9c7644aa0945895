#include "fluid/ops/optimize/average.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

const std::vector<std::string> kSums = {"sum_1", "sum_2", "sum_3"};
const std::vector<std::string> kCounts = {"num_accumulates", "old_num_accumulates", "num_updates"};

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
    context.require_dtype("in_" + name, DType::kInt64);
    const Shape& shape = context.input("in_" + name).shape;
    context.require(shape.numel() == 1, "in_" + name, "one element", shape.to_string());
    context.share("in_" + name, "out_" + name);
  }
}

}  // namespace

void add_average_ops(OpTable& table) {
  std::vector<SlotSpec> inputs = {one("param")};
  std::vector<SlotSpec> outputs;
  for (const auto* names : {&kSums, &kCounts}) {
    for (const std::string& name : *names) {
      inputs.push_back(one("in_" + name));
      outputs.push_back(one("out_" + name));
    }
  }
  table.add(make_schema<AverageAccumulatesAttrs>("average_accumulates", std::move(inputs),
                                                 std::move(outputs), infer_average));
}

}  // namespace fleet::fluid
