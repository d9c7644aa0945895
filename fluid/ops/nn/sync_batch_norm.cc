#include "fluid/ops/nn/sync_batch_norm.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/nn/norm.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

constexpr const char* kNorm = "batch_norm";
constexpr const char* kNormGrad = "batch_norm_grad";

bool normalises_by_batch(const Operator& op) {
  return (op.type == kNorm || op.type == kNormGrad) &&
         !parse_attributes<BatchNormAttrs>(op.type, op.attrs).global_stats();
}

Shape sums_shape(int64_t channels) {
  return Shape{channels < 0 ? Shape::kUnknown : 1 + 2 * channels};
}

int64_t channels_of(const InferContext& context) {
  const Shape& x = context.input("X").shape;
  const auto attrs = context.attrs<BatchNormAttrs>();
  return x[channel_axis(attrs.data_layout, x.rank(), str_cat("op '", context.op().type, "'"))];
}

void infer_sums(InferContext& context) {
  context.set_output("Sums", sums_shape(channels_of(context)), DType::kFloat64);
}

void infer_norm(InferContext& context) {
  context.share("X", "Y");
  for (const char* slot : {"MeanOut", "VarianceOut", "SavedMean", "SavedVariance"}) {
    context.set_output(slot, Shape{channels_of(context)}, context.input("X").dtype);
  }
}

void infer_grad_sums(InferContext& context) {
  infer_sums(context);
  for (const char* slot : {"Scale@GRAD", "Bias@GRAD"}) {
    context.set_output(slot, Shape{channels_of(context)}, context.input("X").dtype);
  }
}

// Makes the ops of one batch_norm or its gradient.
class Parts {
 public:
  Parts(Block& block, const Operator& whole) : block_(block), whole_(whole) {}

  void forward(OpList& ops) const {
    const std::string sums = whole_.output("SavedMean").front() + "@SHARD_SUMS";
    ops.push_back(part("sync_batch_norm_sums", {"X"}, {}, {}, sums));
    ops.push_back(sum(sums));
    ops.push_back(
        part("sync_batch_norm", {"X", "Scale", "Bias", "Mean", "Variance", "MomentumTensor"},
             {"Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"}, total(sums), {}));
  }
  void backward(OpList& ops) const {
    const std::string sums = whole_.input("SavedMean").front() + "@GRAD@SHARD_SUMS";
    ops.push_back(part("sync_batch_norm_grad_sums", {"X", "SavedMean", "SavedVariance", "Y@GRAD"},
                       {"Scale@GRAD", "Bias@GRAD"}, {}, sums));
    const auto& grad = whole_.output("X@GRAD");
    if (grad.empty() || grad.front().empty()) return;
    ops.push_back(sum(sums));
    ops.push_back(part("sync_batch_norm_grad",
                       {"X", "Scale", "SavedMean", "SavedVariance", "Y@GRAD"}, {"X@GRAD"},
                       total(sums), {}));
  }

 private:
  using Slots = std::initializer_list<const char*>;

  static std::string total(const std::string& sums) { return sums + "@TOTAL"; }

  // With these slots of the whole op, and Sums as it says, which it reads or writes.
  Shared<Operator> part(const char* type, Slots inputs, Slots outputs, const std::string& reads,
                        const std::string& writes) const {
    Operator op;
    op.type = type;
    op.attrs = whole_.attrs;
    op.role = whole_.role;
    op.name_scope = whole_.name_scope;
    for (const char* slot : inputs) {
      if (!whole_.input(slot).empty()) op.inputs[slot] = whole_.input(slot);
    }
    for (const char* slot : outputs) {
      if (!whole_.output(slot).empty()) op.outputs[slot] = whole_.output(slot);
    }
    if (!op.output("Scale@GRAD").empty() || !op.output("Bias@GRAD").empty()) {
      op.role_var = whole_.role_var;
    }
    if (!reads.empty()) op.inputs["Sums"] = {reads};
    if (!writes.empty()) op.outputs["Sums"] = {declared(writes)};
    return Shared<Operator>(std::move(op));
  }
  Shared<Operator> sum(const std::string& sums) const {
    Operator op;
    op.type = "shard_sum";
    op.inputs["X"] = {sums};
    op.outputs["Out"] = {declared(total(sums))};
    op.attrs = to_attributes(NoAttrs{});
    op.role = whole_.role;
    return Shared<Operator>(std::move(op));
  }
  std::string declared(const std::string& name) const {
    if (block_.find_var(name) == nullptr) {
      const int64_t channels = block_.var(whole_.input("Scale").front()).shape.numel();
      VarDesc var;
      var.name = name;
      var.dtype = DType::kFloat64;
      var.shape = sums_shape(channels);
      block_.add_var(std::move(var));
    }
    return name;
  }

  Block& block_;
  const Operator& whole_;
};

void refuse_inner_blocks(const Program& program) {
  for (int32_t b = 1; b < program.block_count(); ++b) {
    for (const auto& op : program.block(b).ops()) {
      if (!normalises_by_batch(*op)) continue;
      throw_error(ErrorCode::kNotSupported,
                  {.what = "a batch_norm in a block of control flow cannot be synchronised",
                   .where = op->to_string(),
                   .expected = "batch_norm in the main block, which all shards run alike",
                   .got = str_cat("block ", b),
                   .fix = "take it out of the block, or leave sync_batch_norm off"});
    }
  }
}

}  // namespace

int synchronize_batch_norms(Program& program) {
  refuse_inner_blocks(program);
  Block& block = program.global_block();
  OpList ops;
  int found = 0;
  for (auto& op : block.take_ops()) {
    if (!normalises_by_batch(*op)) {
      ops.push_back(std::move(op));
    } else if (op->type == kNorm) {
      Parts(block, *op).forward(ops);
      ++found;
    } else {
      Parts(block, *op).backward(ops);
    }
  }
  block.set_ops(std::move(ops));
  return found;
}

void add_sync_batch_norm_ops(OpTable& table) {
  table.add(
      make_schema<BatchNormAttrs>("sync_batch_norm_sums", {one("X")}, {one("Sums")}, infer_sums));
  table.add(make_schema<BatchNormAttrs>(
      "sync_batch_norm",
      {one("X"), one("Scale"), one("Bias"), one("Mean"), one("Variance"), maybe("MomentumTensor"),
       one("Sums")},
      {one("Y"), one("MeanOut"), one("VarianceOut"), one("SavedMean"), one("SavedVariance")},
      infer_norm));
  table.add(make_schema<BatchNormAttrs>(
      "sync_batch_norm_grad_sums",
      {one("X"), one("SavedMean"), one("SavedVariance"), one("Y@GRAD")},
      {one("Sums"), maybe("Scale@GRAD"), maybe("Bias@GRAD")}, infer_grad_sums));
  table.add(make_schema<BatchNormAttrs>(
      "sync_batch_norm_grad",
      {one("X"), one("Scale"), one("SavedMean"), one("SavedVariance"), one("Y@GRAD"), one("Sums")},
      {one("X@GRAD")}, infer_like({{"X", "X@GRAD"}})));
  auto sum =
      make_schema<NoAttrs>("shard_sum", {one("X")}, {one("Out")}, infer_like({{"X", "Out"}}));
  sum.run_by = RunBy::kShards;
  table.add(std::move(sum));
}

}  // namespace fleet::fluid
