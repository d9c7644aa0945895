#include "transpiler/parameter_server/async_counter.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "fluid/ops/no_attrs.h"
#include "fluid/ops/shape/fill.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::OpRole;
using fluid::Program;
using fluid::VarDesc;

bool writes_counter(const Operator& op) {
  const auto names = op.output_names();
  return std::find(names.begin(), names.end(), kStepCounter) != names.end();
}

std::string trainer_counter(int trainer) {
  return kStepCounter + shard_suffix(trainer);
}

void declare_counters(Block& block, int trainers) {
  const VarDesc& counter = block.var(kStepCounter);
  for (int trainer = 0; trainer < trainers; ++trainer) {
    VarDesc var;
    var.name = trainer_counter(trainer);
    var.dtype = counter.dtype;
    var.shape = counter.shape;
    var.persistable = true;
    block.add_var(std::move(var));
  }
}

void sum_trainer_counters(Program& main, int trainers) {
  Block& block = main.global_block();
  declare_counters(block, trainers);
  for (size_t i = 0; i < block.op_count(); ++i) {
    if (block.ops()[i]->type != "increment" || !writes_counter(*block.ops()[i])) continue;
    Operator& op = block.edit_op(i);
    op.type = "sum";
    op.attrs = fluid::to_attributes(fluid::NoAttrs{});
    auto& inputs = op.inputs["X"];
    inputs.clear();
    for (int trainer = 0; trainer < trainers; ++trainer) {
      inputs.push_back(trainer_counter(trainer));
    }
  }
}

// Returns the smallest count that a schedule sees.
int64_t start_trainer_counters(Program& startup, int trainers, bool paddle_schedules) {
  int64_t first = 0;
  Block& block = startup.global_block();
  declare_counters(block, trainers);
  auto ops = block.take_ops();
  fluid::OpList rewritten;
  for (int trainer = trainers; trainer-- > 0;) {
    fluid::FillConstantAttrs attrs;
    attrs.shape = {1};
    attrs.dtype = block.var(kStepCounter).dtype;
    attrs.value = 1.0f;
    Operator fill;
    fill.type = "fill_constant";
    fill.outputs["Out"] = {trainer_counter(trainer)};
    fill.attrs = fluid::to_attributes(std::move(attrs));
    rewritten.emplace_back(std::move(fill));
  }
  for (auto& op : ops) {
    if (op->type == "fill_constant" && writes_counter(*op)) {
      auto attrs = fluid::parse_attributes<fluid::FillConstantAttrs>(op->type, op->attrs);
      first = paddle_schedules ? trainers : static_cast<int64_t>(attrs.value) + 1;
      attrs.value = static_cast<float>(paddle_schedules ? trainers - 1 : -trainers);
      op.edit().attrs = fluid::to_attributes(std::move(attrs));
    }
    rewritten.push_back(std::move(op));
  }
  block.set_ops(std::move(rewritten));
  return first;
}

void fill_counter(Program& main, int trainers) {
  Block& block = main.global_block();
  for (size_t i = 0; i < block.op_count(); ++i) {
    if (block.ops()[i]->type != "increment" || !writes_counter(*block.ops()[i])) continue;
    fluid::FillConstantAttrs attrs;
    attrs.shape = {1};
    attrs.dtype = block.var(kStepCounter).dtype;
    attrs.value = static_cast<float>(trainers);
    Operator& op = block.edit_op(i);
    op.type = "fill_constant";
    op.inputs.clear();
    op.attrs = fluid::to_attributes(std::move(attrs));
  }
}

}  // namespace

bool counts_steps(const Program& main) {
  const auto& ops = main.global_block().ops();
  return std::any_of(ops.begin(), ops.end(), [](const auto& op) {
    return fluid::has_role(op->role, OpRole::kLrSched) && op->type == "increment" &&
           writes_counter(*op);
  });
}

int64_t count_per_trainer(Program& main, Program& startup, int trainers, bool paddle_schedules,
                          const PassRunner& runner) {
  int64_t first = 0;
  const std::array main_passes = {
      Pass{"sum_trainer_counters", "The schedule counts the steps of all trainers.",
           [trainers](Program& program) { sum_trainer_counters(program, trainers); }},
  };
  const std::array startup_passes = {
      Pass{"start_trainer_counters", "Each trainer reports one step at a time.",
           [&](Program& program) {
             first = start_trainer_counters(program, trainers, paddle_schedules);
           }},
  };
  runner.run(main, main_passes);
  runner.run(startup, startup_passes);
  return first;
}

void stop_counting(Program& main, int trainers, const PassRunner& runner) {
  const std::array passes = {
      Pass{"stop_counting", "The schedule stays at the step of the trainers' number.",
           [trainers](Program& program) { fill_counter(program, trainers); }},
  };
  runner.run(main, passes);
}

}  // namespace fleet::transpiler
