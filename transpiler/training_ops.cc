#include "transpiler/training_ops.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/optimize/dgc.h"
#include "fluid/ops/optimize/loss_scaling.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::OpRole;

bool is_update_op(const Operator& op) {
  return is_update_role(op) && !op.input("Param").empty() && !op.input("Grad").empty();
}

[[noreturn]] void cannot_move(const Operator& op, std::string what, std::string got) {
  throw_error(ErrorCode::kNotSupported,
              {.what = std::move(what),
               .where = "op '" + op.type + "', role " + fluid::to_string(op.role),
               .expected = "updates of one parameter each, from the gradient that backward makes",
               .got = std::move(got),
               .fix = "train locally or collectively, or take this step out of the optimizer"});
}

void check_role_var(const Operator& op) {
  if (op.role_var.size() == 2) return;
  cannot_move(op, "an op of the optimizer does not belong to one parameter",
              "role_var [" + join(op.role_var, ", ") + "]");
}

// One entry per update op, in order.
std::vector<UpdatedParam> find_updates(const Block& block,
                                       std::unordered_map<std::string, size_t>& index) {
  std::vector<UpdatedParam> params;
  for (size_t i = 0; i < block.op_count(); ++i) {
    const Operator& op = block.op(i);
    if (!is_update_op(op)) continue;
    check_role_var(op);
    const std::string& param = op.role_var[0];
    if (!index.emplace(param, params.size()).second) {
      cannot_move(op, "a parameter is updated twice", "parameter '" + param + "'");
    }
    params.push_back({.param = param, .grad = {}, .ops = {}, .update = i});
  }
  return params;
}

void refuse_dynamic_loss_scaling(const Block& block) {
  const auto scaling = fluid::find_dynamic_loss_scaling(block);
  if (!scaling) return;
  throw_error(ErrorCode::kNotSupported,
              {.what = "dynamic loss scaling looks at all gradients, which no server has",
               .where = str_cat("op 'isfinite', variable '", scaling->finite, "'"),
               .expected = "a loss scaling that stays, or none",
               .got = str_cat("'", scaling->factor, "', which follows the gradients"),
               .fix = "decorate with use_dynamic_loss_scaling = false or with bfloat16, or train "
                      "collectively"});
}

using NameSet = std::unordered_set<std::string>;

// What forward and backward make.
class MadeBeforeUpdates {
 public:
  explicit MadeBeforeUpdates(const Block& block) : block_(block) {
    for (const auto& op : block.ops()) {
      if (is_update_role(*op) || is_schedule_role(*op)) continue;
      for (const auto& [slot, names] : op->outputs) {
        for (const std::string& name : names) add(block.position_of(name));
      }
    }
  }
  bool contains(std::string_view name) const {
    const size_t position = block_.position_of(name);
    return position < made_.size() && made_[position];
  }

 private:
  void add(size_t position) {
    if (position == fluid::VarTable::kNone) return;
    if (position >= made_.size()) made_.resize(std::max(position + 1, 2 * made_.size()));
    made_[position] = true;
  }

  const Block& block_;
  std::vector<bool> made_;  // by position
};

// Servers compute schedules, not what forward ops make of them.
void check_rate(const Operator& op, const MadeBeforeUpdates& made) {
  for (const std::string& rate : op.input("LearningRate")) {
    if (!made.contains(rate)) continue;
    throw_error(ErrorCode::kNotSupported,
                {.what = "a learning rate is computed outside of its schedule",
                 .where = str_cat("op '", op.type, "' of parameter '", op.role_var[0],
                                  "', LearningRate '", rate, "'"),
                 .expected = "a number, or a variable that ops of role lrsched make",
                 .got = "a variable that ops of role forward make",
                 .fix = "use the schedule's own learning_rate, or add the ops behind "
                        "RoleGuard(program, OpRole::kLrSched)"});
  }
}

// The gradient that a chain starts from: the only thing that it takes from backward.
void find_gradient(const Block& block, const MadeBeforeUpdates& made, UpdatedParam& param) {
  std::set<std::string> found;
  check_rate(block.op(param.update), made);
  for (const size_t position : param.ops) {
    for (const auto& [slot, names] : block.op(position).inputs) {
      for (const std::string& name : names) {
        if (name != param.param && made.contains(name)) found.insert(name);
      }
    }
  }
  if (found.size() != 1) {
    const std::vector<std::string> names(found.begin(), found.end());
    cannot_move(block.op(param.update),
                found.empty() ? "a parameter is updated from no gradient of backward"
                              : "a parameter is updated from several values of backward",
                "parameter '" + param.param + "', [" + join(names, ", ") + "]");
  }
  param.grad = *found.begin();
}

// What parameters are, and what the optimizer makes of them: ops that take it decay a gradient, as
// clips do not look at parameters.
struct Decays {
  NameSet values;
  std::vector<bool> ops;  // by position
};

Decays find_decays(const Block& block) {
  Decays found{.values = {}, .ops = std::vector<bool>(block.op_count())};
  for (const auto& op : block.ops()) {
    if (is_update_op(*op)) found.values.insert(op->input("Param").front());
  }
  for (size_t i = 0; i < block.op_count(); ++i) {
    const Operator& op = *block.ops()[i];
    if (!is_update_role(op) || is_update_op(op)) continue;
    const auto inputs = op.input_names();
    found.ops[i] = std::any_of(inputs.begin(), inputs.end(), [&found](const std::string& name) {
      return found.values.contains(name);
    });
    if (!found.ops[i]) continue;
    for (std::string& name : op.output_names()) found.values.insert(std::move(name));
  }
  return found;
}

}  // namespace

void keep_clips_on_trainer(fluid::Program& program) {
  Block& block = program.global_block();
  const MadeBeforeUpdates made(block);
  // Gradients that updates take and that only the optimizer makes.
  NameSet wanted;
  for (const auto& op : block.ops()) {
    if (is_update_op(*op) && !made.contains(op->input("Grad").front())) {
      wanted.insert(op->input("Grad").front());
    }
  }
  if (wanted.empty()) return;
  const Decays decays = find_decays(block);
  for (size_t i = block.op_count(); i-- > 0;) {
    const Operator& op = *block.ops()[i];
    if (!is_update_role(op) || is_update_op(op)) continue;
    const auto outputs = op.output_names();
    if (std::none_of(outputs.begin(), outputs.end(),
                     [&wanted](const std::string& name) { return wanted.contains(name); })) {
      continue;
    }
    for (const std::string& name : op.input_names()) {
      if (!made.contains(name) && !decays.values.contains(name)) wanted.insert(name);
    }
    if (!decays.ops[i]) block.edit_op(i).role = OpRole::kBackward;
  }
}

void refuse_growing_tables(const fluid::Program& program, const char* mode) {
  for (const fluid::VarDesc* param : program.global_block().parameters()) {
    if (param->kind != fluid::VarKind::kGrowingTable) continue;
    throw_error(ErrorCode::kNotSupported,
                {.what = "a job of this mode cannot train growing tables",
                 .where = "parameter '" + param->name + "'",
                 .expected = "tables with a height in a job with " + std::string(mode),
                 .got = "a growing table",
                 .fix = "train it with parameter servers in step, asynchronously or half "
                        "asynchronously, or use layers::embedding"});
  }
}

void refuse_compressed_gradients(const fluid::Program& program, const char* mode) {
  const auto& ops = program.global_block().ops();
  const auto found = std::find_if(ops.begin(), ops.end(),
                                  [](const auto& op) { return op->type == fluid::kCompress; });
  if (found == ops.end()) return;
  throw_error(ErrorCode::kNotSupported,
              {.what = str_cat("compressed gradients cannot be trained with ", mode),
               .where = str_cat("op '", fluid::kCompress, "' of parameter '",
                                (*found)->input("Param").front(), "'"),
               .expected = "a collective job that sums gradients (GradAllReduceStrategy)",
               .got = mode,
               .fix = "use the Momentum optimizer, or GradAllReduceStrategy"});
}

bool is_update_role(const Operator& op) {
  return fluid::has_role(op.role, OpRole::kOptimize) && !is_schedule_role(op);
}

bool is_post_update_op(const Operator& op) {
  return is_update_role(op) && op.role_var.empty();
}

bool is_schedule_role(const Operator& op) {
  return fluid::has_role(op.role, OpRole::kLrSched);
}

TrainingOps find_training_ops(const fluid::Program& program) {
  const Block& block = program.global_block();
  refuse_dynamic_loss_scaling(block);
  TrainingOps found;
  std::unordered_map<std::string, size_t> index;
  found.params = find_updates(block, index);
  if (found.params.empty()) {
    throw_error(
        ErrorCode::kPrecondition,
        {.what = "the program has no op that updates a parameter",
         .where = "transpile, program",
         .expected = "a program that an optimizer's minimize has completed",
         .got = str_cat(block.op_count(), " ops, none of role optimize with Param and Grad"),
         .fix = "call minimize before transpile"});
  }
  for (size_t i = 0; i < block.op_count(); ++i) {
    const Operator& op = block.op(i);
    if (!is_update_role(op) && !is_schedule_role(op)) continue;
    for (const char* slot : {"LearningRate", "Beta1Tensor", "Beta2Tensor"}) {
      for (const std::string& number : op.input(slot)) found.learning_rates.insert(number);
    }
    if (is_schedule_role(op)) {
      found.lr_ops.push_back(i);
      for (const std::string& name : op.input_names()) found.learning_rates.insert(name);
      for (const std::string& name : op.output_names()) found.learning_rates.insert(name);
    } else if (is_post_update_op(op)) {
      found.post_update_ops.push_back(i);
    } else {
      check_role_var(op);
      const auto owner = index.find(op.role_var[0]);
      if (owner == index.end()) {
        cannot_move(op, "an op of the optimizer belongs to a parameter that nothing updates",
                    "parameter '" + op.role_var[0] + "'");
      }
      found.params[owner->second].ops.push_back(i);
    }
  }
  for (const size_t op : found.post_update_ops) {
    for (const UpdatedParam& param : found.params) {
      if (op < param.ops.back()) check_role_var(block.op(op));
    }
  }
  const MadeBeforeUpdates made(block);
  for (UpdatedParam& param : found.params) find_gradient(block, made, param);
  std::sort(found.params.begin(), found.params.end(),
            [](const UpdatedParam& a, const UpdatedParam& b) { return a.ops[0] < b.ops[0]; });
  return found;
}

void check_post_update_ops(const fluid::Program& program, const TrainingOps& ops) {
  if (ops.post_update_ops.empty()) return;
  const Block& block = program.global_block();
  std::set<std::string, std::less<>> params;
  std::set<std::string, std::less<>> taken = ops.learning_rates;
  for (const UpdatedParam& param : ops.params) {
    params.insert(param.param);
    for (const size_t position : param.ops) {
      for (std::string& name : block.op(position).input_names()) taken.insert(std::move(name));
    }
  }
  for (const size_t position : ops.post_update_ops) {
    const Operator& op = block.op(position);
    for (const std::string& name : op.output_names()) {
      if (!taken.contains(name)) continue;
      cannot_move(op, "an op after the updates writes a variable that they read",
                  "variable '" + name + "'");
    }
    for (const std::string& name : op.input_names()) {
      if (!taken.contains(name) || params.contains(name)) continue;
      cannot_move(op, "an op after the updates reads a variable that only the servers have",
                  "variable '" + name + "'");
    }
  }
}

}  // namespace fleet::transpiler
