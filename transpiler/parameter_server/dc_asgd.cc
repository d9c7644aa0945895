#include "transpiler/parameter_server/dc_asgd.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/server_ops.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/shape/fill.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::VarDesc;

std::string local_backup_name(const PlacedSlice& slice) {
  return slice.param + ".local_bak";
}

std::string mean_square_name(const PlacedSlice& slice) {
  return slice.param + ".dc_mean_square";
}

void declare(Block& block, std::string name, const PlacedSlice& slice, fluid::DType dtype) {
  VarDesc var;
  var.name = std::move(name);
  var.dtype = dtype;
  var.shape = slice.shape;
  block.add_var(std::move(var));
}

void append_backup_of_trainer(Block& block, const PlacedSlice& slice, fluid::DType dtype,
                              int trainers) {
  VarDesc id;
  id.name = kTrainerId;
  id.dtype = fluid::DType::kInt64;
  id.shape = fluid::Shape{1};
  block.add_var(std::move(id));
  declare(block, local_backup_name(slice), slice, dtype);
  Operator op;
  op.type = "ref_by_trainer_id";
  for (int trainer = 0; trainer < trainers; ++trainer) {
    op.inputs["X"].push_back(backup_name(slice, trainer));
  }
  op.inputs["TrainerId"] = {kTrainerId};
  op.outputs["Out"] = {local_backup_name(slice)};
  op.attrs = fluid::to_attributes(fluid::NoAttrs{});
  block.append_op(std::move(op));
}

// g + (p - bak) g g, op by op, as release 1.8 has it.
std::string append_original(Block& block, const PlacedSlice& slice, const std::string& grad,
                            fluid::DType dtype, int& temporaries) {
  const auto append = [&](const char* type, const std::string& x, const std::string& y) {
    std::string out = str_cat("tmp_dc_output_", temporaries++);
    declare(block, out, slice, dtype);
    Operator op;
    op.type = type;
    op.inputs["X"] = {x};
    op.inputs["Y"] = {y};
    op.outputs["Out"] = {out};
    op.attrs = fluid::to_attributes(fluid::ElementwiseAttrs{});
    block.append_op(std::move(op));
    return out;
  };
  const std::string delay = append("elementwise_sub", slice.param, local_backup_name(slice));
  const std::string once = append("elementwise_mul", delay, grad);
  const std::string twice = append("elementwise_mul", once, grad);
  return append("elementwise_add", grad, twice);
}

}  // namespace

void require_compensation(const fluid::Program& program, const TrainingOps& ops,
                          const DcAsgdForm& form) {
  if (form.name != "original") return;
  for (const auto* updates : {&ops.params, &ops.tables}) {
    for (const UpdatedParam& updated : *updates) {
      if (program.global_block().var(updated.grad).kind != fluid::VarKind::kSelectedRows) continue;
      throw_error(ErrorCode::kNotSupported,
                  {.what = "delays of these gradients of rows are not compensated",
                   .where = str_cat("DistributeTranspilerConfig.enable_dc_asgd, parameter '",
                                    updated.param, "'"),
                   .expected = "dense gradients, the only ones that the original's ops take",
                   .got = "dc_asgd_form = 'original', is_sparse = true",
                   .fix = "choose another dc_asgd_form, or set is_sparse to false"});
    }
  }
}

std::string backup_name(const PlacedSlice& slice, int trainer) {
  return str_cat(slice.param, shard_suffix(trainer), "_bak");
}

void declare_backups(Block& block, const PlacedSlice& slice, const VarDesc& param, int trainers) {
  for (int trainer = 0; trainer < trainers; ++trainer) {
    declare(block, backup_name(slice, trainer), slice, param.dtype);
  }
}

std::string append_compensation(Block& block, const PlacedSlice& slice, const std::string& grad,
                                const DcAsgdForm& form, int trainers, int& temporaries) {
  const fluid::DType dtype = block.var(slice.param).dtype;
  append_backup_of_trainer(block, slice, dtype, trainers);
  if (form.name == "original") return append_original(block, slice, grad, dtype, temporaries);
  std::string out = str_cat("tmp_dc_output_", temporaries++);
  declare(block, out, slice, dtype);
  block.edit_var(out).kind = block.var(grad).kind;
  Operator op;
  op.type = "dc_compensate";
  op.inputs["Param"] = {slice.param};
  op.inputs["Grad"] = {grad};
  op.inputs["Backup"] = {local_backup_name(slice)};
  op.outputs["Out"] = {out};
  if (form.name != "constant") {
    VarDesc mean = block.var(slice.param);  // of a distributed table rows
    mean.name = mean_square_name(slice);
    mean.persistable = true;
    mean.kind = fluid::VarKind::kLodTensor;
    if (mean.slice) mean.slice->origin += ".dc_mean_square";
    block.program().global_block().add_var(std::move(mean));
    op.inputs["MeanSquare"] = {mean_square_name(slice)};
    op.outputs["MeanSquareOut"] = {mean_square_name(slice)};
  }
  op.attrs =
      fluid::to_attributes(fluid::DcCompensateAttrs{.form = form.name,
                                                    .lambda = static_cast<float>(form.lambda),
                                                    .m = static_cast<float>(form.m),
                                                    .epsilon = static_cast<float>(form.epsilon)});
  block.append_op(std::move(op));
  return out;
}

namespace {

// What each backup is one of.
std::map<std::string, std::string> params_by_backup(const fluid::Program& server_program) {
  std::map<std::string, std::string> params;
  for (int32_t index = 1; index < server_program.block_count(); ++index) {
    const auto& ops = server_program.block(index).ops();
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i]->type != "ref_by_trainer_id") continue;
      // The next op reads the parameter beside the backup.
      const Operator& next = *ops[i + 1];
      const char* slot = next.type == "dc_compensate" ? "Param" : "X";
      for (const std::string& backup : ops[i]->input("X")) {
        params[backup] = next.input(slot).front();
      }
    }
  }
  return params;
}

}  // namespace

void append_backup_initialisers(fluid::Program& startup, const fluid::Program& server_program) {
  Block& block = startup.global_block();
  const auto params = params_by_backup(server_program);
  for (const VarDesc* var : server_program.global_block().vars_in_order()) {
    const auto param = params.find(var->name);
    if (param == params.end()) continue;
    Operator assign;
    assign.type = "assign";
    assign.inputs["X"] = {param->second};
    assign.outputs["Out"] = {var->name};
    assign.attrs = fluid::to_attributes(fluid::NoAttrs{});
    block.append_op(std::move(assign));
  }
  for (int32_t index = 1; index < server_program.block_count(); ++index) {
    for (const auto& shared : server_program.block(index).ops()) {
      const Operator& op = *shared;
      if (op.type != "dc_compensate" || op.input("MeanSquare").empty()) continue;
      const VarDesc& mean = block.var(op.input("MeanSquare").front());
      fluid::FillConstantAttrs attrs;
      attrs.shape = mean.shape.to_vector();
      attrs.dtype = mean.dtype;
      Operator fill;
      fill.type = "fill_constant";
      fill.outputs["Out"] = {mean.name};
      fill.attrs = fluid::to_attributes(std::move(attrs));
      block.append_op(std::move(fill));
    }
  }
}

}  // namespace fleet::transpiler
