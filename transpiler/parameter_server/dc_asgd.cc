#include "transpiler/parameter_server/dc_asgd.h"

#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/server_program.h"
#include "fluid/ops/math/elementwise.h"
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
  id.name = fluid::kTrainerId;
  id.dtype = fluid::DType::kInt64;
  id.shape = fluid::Shape{1};
  block.add_var(std::move(id));
  declare(block, local_backup_name(slice), slice, dtype);
  std::vector<std::string> backups;
  for (int trainer = 0; trainer < trainers; ++trainer) {
    backups.push_back(backup_name(slice, trainer));
  }
  append_backup(block, std::move(backups), local_backup_name(slice));
}

// g + (p - bak) g g, op by op, as release 1.8 has it.
std::string append_paddle(Block& block, const PlacedSlice& slice, const std::string& grad,
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
  if (form.name != "paddle") return;
  for (const auto* updates : {&ops.params, &ops.tables}) {
    for (const UpdatedParam& updated : *updates) {
      if (program.global_block().var(updated.grad).kind != fluid::VarKind::kSelectedRows) continue;
      throw_error(ErrorCode::kNotSupported,
                  {.what = "delays of these sparse gradients are not compensated",
                   .where = str_cat("DistributeTranspilerConfig.enable_dc_asgd, parameter '",
                                    updated.param, "'"),
                   .expected = "dense gradients, the only ones that Paddle's ops take",
                   .got = "dc_asgd_form = 'paddle', is_sparse = true",
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
  if (form.name == "paddle") return append_paddle(block, slice, grad, dtype, temporaries);
  std::string out = str_cat("tmp_dc_output_", temporaries++);
  declare(block, out, slice, dtype);
  block.edit_var(out).kind = block.var(grad).kind;
  fluid::Compensation names{.value = slice.param,
                            .gradient = grad,
                            .backup = local_backup_name(slice),
                            .mean_square = {},
                            .out = out};
  if (form.name != "constant") {
    VarDesc mean = block.var(slice.param);  // of a distributed table rows
    mean.name = mean_square_name(slice);
    mean.persistable = true;
    mean.kind = fluid::VarKind::kLodTensor;
    if (mean.slice) mean.slice->origin += ".dc_mean_square";
    block.program().global_block().add_var(std::move(mean));
    names.mean_square = mean_square_name(slice);
  }
  fluid::append_compensation(block, names,
                             {.form = form.name,
                              .lambda = static_cast<float>(form.lambda),
                              .m = static_cast<float>(form.m),
                              .epsilon = static_cast<float>(form.epsilon)});
  return out;
}

void append_backup_initialisers(fluid::Program& startup, const fluid::ServerProgram& server) {
  Block& block = startup.global_block();
  std::map<std::string_view, const std::string*> values;
  for (const fluid::ServerSlice& slice : server.slices) {
    for (const std::string& backup : slice.backups) values[backup] = &slice.value;
  }
  for (const VarDesc* var : block.vars_in_order()) {
    const auto value = values.find(var->name);
    if (value != values.end()) fluid::append_replacement(block, var->name, *value->second);
  }
  for (const fluid::ServerSlice& slice : server.slices) {
    if (slice.mean_square.empty()) continue;
    const VarDesc& mean = block.var(slice.mean_square);
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

}  // namespace fleet::transpiler
