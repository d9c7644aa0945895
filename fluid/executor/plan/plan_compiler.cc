#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/plan/plan_buffers_impl.h"
#include "fluid/executor/plan/plan_compiler_impl.h"
#include "fluid/executor/plan/plan_rows_impl.h"
#include "fluid/executor/plan/plan_shards_impl.h"
#include "fluid/ops/distributed/names.h"

namespace fleet::fluid {
namespace {

// Ops that look rows up in a table which the transpiler placed on servers.
bool fetches_table(const OpSchema& schema, const Operator& op) {
  const Attribute* attr = op.attr(kTableNames);
  const auto* names = attr == nullptr ? nullptr : std::get_if<std::vector<std::string>>(attr);
  return names != nullptr && !names->empty() && schema.run_by != RunBy::kRuntime;
}

bool calls_runtime(const OpSchema& schema, const Operator& op) {
  return schema.run_by == RunBy::kRuntime || fetches_table(schema, op) ||
         schema.leaves_values_to_servers;
}

}  // namespace

bool calls_runtime(const Program& program) {
  for (int32_t i = 0; i < program.block_count(); ++i) {
    for (const auto& op : program.block(i).ops()) {
      if (calls_runtime(schema_of(program, *op), *op)) return true;
    }
  }
  return false;
}

namespace {

bool is_lr(const Operator& op) {
  return has_role(op.role, OpRole::kLrSched);
}

[[noreturn]] void throw_never_written(const Operator& op, const PlanVar& missing) {
  const bool data = missing.desc != nullptr && missing.desc->is_data;
  throw_error(
      data ? ErrorCode::kFeed : ErrorCode::kInvalidProgram,
      {.what = data ? "a data variable is not fed" : "a variable is read before anything writes it",
       .where = str_cat("variable '", missing.name, "', read by op '", op.type, "'"),
       .expected = data ? str_cat(dtype_name(missing.desc->dtype), missing.desc->shape)
                        : "an earlier op that writes it, or a persistable variable",
       .got = "nothing",
       .fix = data ? "add it to the feed"
                   : "check the order of the ops, or that the program was cut rightly"});
}

[[noreturn]] void throw_unknown_fetch(const Program& program, const std::vector<std::string>& known,
                                      const std::string& name) {
  const bool cut = program.was_pruned(name);
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "the program has no such variable" +
                       (cut ? ": prune cut it away" : did_you_mean(name, known)),
               .where = "fetch '" + name + "'",
               .expected = "a variable of the program that runs",
               .got = cut ? "a variable of the program before prune" : name,
               .fix = cut ? "name it among the targets of prune (save_inference_model)"
                          : "correct the name in the fetch list, or name it among the targets of "
                            "the save_inference_model that left it out"});
}

}  // namespace

PlanCompiler::PlanCompiler(const PlanKey& key, const KernelTable& kernels, bool whole_step)
    : PlanCompiler(
          key, kernels,
          std::make_shared<const OpPlaces>(key.program->block(key.block), kernels, key.place,
                                           OpPlaces::Options{.strict = key.strict_place,
                                                             .device_sums = key.device_sums,
                                                             .tables_here = key.tables_here})) {
  plan_.whole_step = whole_step;
  plan_.inner = false;
}

PlanCompiler::PlanCompiler(const PlanKey& key, const KernelTable& kernels,
                           std::shared_ptr<const OpPlaces> places)
    : places_(std::move(places)), copies_(plan_, *places_) {
  plan_.key = key;
  plan_.program_id = key.program->id();
  plan_.seed = key.program->random_seed();
  plan_.block = &key.program->block(key.block);
  plan_.kernels = &kernels;
  plan_.op_library = key.program->op_library();
  plan_.whole_step = false;
  plan_.inner = true;
}

std::shared_ptr<const Plan> PlanCompiler::compile() {
  order_ops();
  add_feeds();
  add_ops();
  find_per_shard(plan_);
  find_statistics(plan_);
  add_fetches();
  find_whether_shards_are_apart(plan_);
  find_waits();
  find_staged(plan_);
  find_lod();
  if (plan_.whole_step) plan_buffers(plan_);
  join_rows(plan_);
  find_side_by_side(plan_);
  return std::shared_ptr<const Plan>(new Plan(std::move(plan_)));
}

bool PlanCompiler::in_shard(const Operator& op) const {
  if (is_lr(op)) return false;
  return row(op).once_a_shard || has_role(op.role, OpRole::kForward) ||
         has_role(op.role, OpRole::kBackward) || has_role(op.role, OpRole::kLoss);
}

void PlanCompiler::order_ops() {
  size_t end = 0;
  const auto& ops = block().ops();
  plan_.sharded = plan_.key.replicas;
  for (size_t i = 0; i < ops.size(); ++i) {
    plan_.compiled_ops.push_back(ops[i].version());
    if (in_shard(*ops[i])) end = i + 1;
    const bool trains = has_role(ops[i]->role, OpRole::kBackward) && !is_lr(*ops[i]);
    if (plan_.whole_step && (trains || row(*ops[i]).once_a_shard)) plan_.sharded = true;
    if (calls_runtime(row(*ops[i]), *ops[i])) plan_.communicates = true;
  }
  for (const auto& op : ops) {
    if (is_lr(*op)) order_.push_back(op.get());
  }
  plan_.head = static_cast<int>(order_.size());
  for (size_t i = 0; i < end; ++i) {
    if (!is_lr(*ops[i])) order_.push_back(ops[i].get());
  }
  plan_.tail = static_cast<int>(order_.size());
  for (size_t i = end; i < ops.size(); ++i) {
    if (!is_lr(*ops[i])) order_.push_back(ops[i].get());
  }
}

void PlanCompiler::add_ops() {
  const auto head = static_cast<size_t>(plan_.head);
  const auto tail = static_cast<size_t>(plan_.tail);
  for (size_t i = 0; i <= order_.size(); ++i) {
    if (i == head) {
      copies_.meet(true);
      plan_.head = static_cast<int>(plan_.ops.size());
    }
    if (i == tail) {
      copies_.meet(false);
      plan_.tail = static_cast<int>(plan_.ops.size());
    }
    in_shards_ = i >= head && i < tail;
    if (i < order_.size()) add_op(*order_[i]);
  }
  copies_.meet(false);
}

std::vector<std::string> PlanCompiler::known_names() const {
  std::vector<std::string> names;
  for (const VarDesc* var : block().vars()) names.push_back(var->name);
  return names;
}

int PlanCompiler::index_of(const std::string& name) {
  const auto [found, added] = plan_.index.emplace(name, static_cast<int>(plan_.vars.size()));
  if (added) {
    PlanVar var;
    var.name = name;
    var.desc = block().find_var_recursive(name);
    var.in_scope = var.desc != nullptr && var.desc->persistable;
    var.outer = plan_.inner && !var.in_scope && block().find_var(name) == nullptr;
    var.place = places_->home(name);
    if (var.in_scope) plan_.persistables[name] = var.place;
    plan_.vars.push_back(std::move(var));
  }
  return found->second;
}

void PlanCompiler::add_feeds() {
  const auto& feeds = plan_.key.feeds;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const bool twice = std::find(feeds.begin(), feeds.begin() + static_cast<long>(i), feeds[i]) !=
                       feeds.begin() + static_cast<long>(i);
    if (twice || block().find_var_recursive(feeds[i]) == nullptr) {
      throw_error(ErrorCode::kFeed, {.what = twice ? "a variable is fed twice"
                                                   : "the program has no such variable" +
                                                         did_you_mean(feeds[i], known_names()),
                                     .where = "feed '" + feeds[i] + "'",
                                     .expected = "each data variable of the program once",
                                     .got = feeds[i],
                                     .fix = "correct the name in the feed"});
    }
    PlanVar& fed = var(index_of(feeds[i]));
    fed.feed = static_cast<int>(i);
    fed.in_scope = false;
    plan_.persistables.erase(fed.name);
  }
}

void PlanCompiler::add_op(const Operator& op) {
  PlanOp planned;
  planned.op = &op;
  planned.schema = &row(op);
  planned.communication = planned.schema->run_by == RunBy::kRuntime;
  planned.fetches_table = fetches_table(*planned.schema, op);
  if (planned.schema->run_by == RunBy::kExecutor) add_block(op, planned);
  const bool joins = planned.schema->run_by == RunBy::kShards;
  if (joins) require_shards(op);
  const bool computed = !planned.communication && planned.block == nullptr && !joins;
  const Place place = places_->of(block(), op);
  if (computed && !plan_.kernels->knows(op.type, place.kind)) {
    throw_error(ErrorCode::kNotSupported,
                {.what = "no kernel computes this op" +
                         did_you_mean(op.type, plan_.kernels->ops(place.kind)),
                 .where = "op '" + op.type + "'",
                 .expected = "an op that has a kernel on " + place.to_string(),
                 .got = op.type,
                 .fix = "give the program the library that has the op and its kernels "
                        "(Program::set_op_library); files do not hold it"});
  }
  add_inputs(op, planned);
  add_outputs(op, planned);
  copies_.place(planned);
  if (joins) plan_.joins.push_back(static_cast<int>(plan_.ops.size()));
  plan_.ops.push_back(std::move(planned));
}

void PlanCompiler::require_shards(const Operator& op) const {
  if (plan_.whole_step && in_shards_) return;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "shards of a step cannot meet here",
               .where = op.to_string(),
               .expected = "an op of the forward or backward part, in the main block",
               .got = plan_.whole_step ? "one that runs once a step" : "one of another block",
               .fix = "leave sync_batch_norm off"});
}

void PlanCompiler::add_inputs(const Operator& op, PlanOp& planned) {
  std::string_view table;
  if (!planned.fetches_table) table = planned.schema->table_slot;
  for (const auto& [slot, names] : op.inputs) {
    for (const std::string& name : names) {
      const int i = index_of(name);
      if (slot == table) planned.table = static_cast<int>(planned.inputs.size());
      planned.inputs.push_back(i);
      PlanVar& read = var(i);
      if (read.in_scope || read.feed >= 0 || read.written || planned.communication || plan_.inner) {
        continue;
      }
      if (plan_.whole_step) throw_never_written(op, read);
      read.in_scope = true;
      plan_.persistables[name] = read.place;
    }
  }
}

void PlanCompiler::add_outputs(const Operator& op, PlanOp& planned) {
  for (const auto& [slot, names] : op.outputs) {
    for (const std::string& name : names) {
      planned.outputs.push_back(name.empty() ? -1 : index_of(name));
      if (name.empty()) continue;
      PlanVar& out = var(planned.outputs.back());
      out.written = true;
      out.fed_and_written = out.feed >= 0;
    }
  }
}

void PlanCompiler::add_block(const Operator& op, PlanOp& planned) {
  const Block* inner = block_of(block(), op);
  if (inner == nullptr) {
    const Attribute* attr = op.attr("sub_block");
    throw_error(ErrorCode::kInvalidProgram, {.what = "an op names no block of the program",
                                             .where = op.to_string(),
                                             .expected = "attribute sub_block: an inner block",
                                             .got = attr == nullptr ? "nothing" : to_string(*attr),
                                             .fix = "build the op with its layer"});
  }
  const PlanKey key = {.program = plan_.key.program,
                       .block = inner->index(),
                       .feeds = {},
                       .fetches = {},
                       .place = plan_.key.place};
  planned.block = PlanCompiler(key, *plan_.kernels, places_).compile();
  const auto& persistables = planned.block->persistables();
  plan_.persistables.insert(persistables.begin(), persistables.end());
  for (const PlanVar& inside : planned.block->vars()) {
    if (!inside.outer || this->block().find_var_recursive(inside.name) == nullptr) continue;
    const int i = index_of(inside.name);
    planned.block_vars.push_back(i);
    if (inside.written) var(i).written = true;
  }
}

bool PlanCompiler::is_loss(int i) {
  for (const PlanOp& op : plan_.ops) {
    if (!has_role(op.op->role, OpRole::kLoss) || has_role(op.op->role, OpRole::kBackward)) continue;
    const bool makes = std::any_of(op.outputs.begin(), op.outputs.end(), [&](int output) {
      return output == i || (output >= 0 && var(output).copy_of == i);
    });
    if (makes) return true;
  }
  return false;
}

void PlanCompiler::add_fetches() {
  for (const std::string& name : plan_.key.fetches) {
    if (block().find_var_recursive(name) == nullptr) {
      throw_unknown_fetch(block().program(), known_names(), name);
    }
    PlanFetch fetch;
    fetch.var = index_of(name);
    const PlanVar& wanted = var(fetch.var);
    if (!wanted.in_scope && wanted.feed < 0 && !wanted.written) {
      const bool data = wanted.desc != nullptr && wanted.desc->is_data;
      throw_error(ErrorCode::kInvalidProgram,
                  {.what = "nothing feeds or writes this variable",
                   .where = "fetch '" + name + "'",
                   .expected = "a variable that is fed, that an op writes, or a persistable one",
                   .got = name,
                   .fix = data ? "add it to the feed, or leave it out of the fetch list"
                               : "fetch it from the program that computes it"});
    }
    const auto& sums = plan_.per_shard;
    const bool summed = std::find(sums.begin(), sums.end(), fetch.var) != sums.end();
    if (wanted.feed >= 0 && !wanted.written) {
      fetch.kind = PlanFetch::Kind::kFeed;
    } else if (!wanted.in_scope && !summed && written_in_shard(plan_, fetch.var)) {
      const bool mean = !plan_.key.replicas && is_loss(fetch.var);
      fetch.kind = mean ? PlanFetch::Kind::kMean : PlanFetch::Kind::kRows;
    }
    plan_.fetches.push_back(fetch);
  }
}

std::vector<int> PlanCompiler::memory_read(const PlanOp& op) const {
  std::vector<int> read = op.inputs;
  for (const PlanOp& other : plan_.ops) {
    const bool viewed =
        other.schema->makes_views && std::any_of(op.inputs.begin(), op.inputs.end(), [&](int i) {
          return std::find(other.outputs.begin(), other.outputs.end(), i) != other.outputs.end();
        });
    if (viewed) read.push_back(other.inputs.front());
  }
  return read;
}

void PlanCompiler::find_waits() {
  for (PlanOp& op : plan_.ops) {
    if (op.communication) op.memory_read = memory_read(op);
  }
  for (PlanOp& op : plan_.ops) {
    if (op.communication) continue;
    for (size_t k = 0; k < plan_.ops.size(); ++k) {
      const PlanOp& other = plan_.ops[k];
      if (!other.communication) continue;
      const auto shares = [](const std::vector<int>& a, const std::vector<int>& b) {
        return std::any_of(a.begin(), a.end(), [&b](int i) {
          return i >= 0 && std::find(b.begin(), b.end(), i) != b.end();
        });
      };
      if (shares(op.outputs, other.memory_read) || shares(op.outputs, other.outputs) ||
          shares(op.inputs, other.outputs)) {
        op.waits.push_back(static_cast<int>(k));
      }
    }
  }
}

void PlanCompiler::find_lod() {
  const auto has_lod = [this](int i) {
    return i >= 0 && var(i).desc != nullptr && var(i).desc->lod_level > 0;
  };
  for (PlanOp& op : plan_.ops) {
    if (std::none_of(op.outputs.begin(), op.outputs.end(), has_lod)) continue;
    const auto from = std::find_if(op.inputs.begin(), op.inputs.end(), has_lod);
    if (from != op.inputs.end()) op.lod_from = static_cast<int>(from - op.inputs.begin());
  }
}

}  // namespace fleet::fluid
