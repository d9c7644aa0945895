#include "strategies/parameter_server/server/async_server_program.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/strings.h"
#include "fluid/ops/distributed/names.h"
#include "strategies/parameter_server/server/server_variables.h"
#include "strategies/parameter_server/server/table_checkpoint.h"

namespace fleet::strategies {
namespace {

// The slice that the block changes: an update's ParamOut, or what a sum adds the gradient to.
std::string value_of_block(const fluid::Block& block, const std::string& gradient) {
  std::string value;
  for (const auto& op : block.ops()) {
    const auto& updated = op->output("ParamOut");
    if (!updated.empty()) value = updated.front();
    const auto& inputs = op->input("X");
    const bool adds = op->type == "sum" &&
                      std::find(inputs.begin(), inputs.end(), gradient) != inputs.end() &&
                      op->output("Out").front() != gradient;
    // Statistics that are not trained: what arrives is the new value.
    const bool replaces = op->type == "assign" && inputs == std::vector{gradient};
    if (value.empty() && (adds || replaces)) value = op->output("Out").front();
  }
  return value;
}

AsyncOptimizeBlock read_block(const fluid::Program& program, const std::string& binding,
                              int trainers) {
  AsyncOptimizeBlock found;
  std::tie(found.gradient, found.block) = read_binding(program, binding, "grad_to_block_id");
  const fluid::Block& block = program.block(found.block);
  found.value = value_of_block(block, found.gradient);
  if (found.value.empty()) {
    throw_server_program("an optimize block updates nothing", str_cat("block ", found.block),
                         "an op with output ParamOut, or a sum", "none");
  }
  found.plain = std::all_of(block.ops().begin(), block.ops().end(),
                            [](const auto& op) { return op->output("ParamOut").empty(); });
  for (const auto& op : block.ops()) {
    if (op->type != "ref_by_trainer_id") continue;
    found.backups = op->input("X");
    found.trainer_id = op->input("TrainerId").front();
  }
  if (!found.backups.empty() && found.backups.size() != static_cast<size_t>(trainers)) {
    throw_server_program("the server program compensates delays of another number of trainers",
                         found.value, str_cat(trainers), str_cat(found.backups.size()));
  }
  return found;
}

double number_in(const fluid::Tensor& tensor) {
  return tensor.item<double>();
}

}  // namespace

AsyncServerProgram read_async_server_program(const fluid::Program& program,
                                             const fluid::Operator& listen, int trainers) {
  AsyncServerProgram parsed;
  parsed.listen = fluid::parse_attributes<fluid::ListenAndServAttrs>(listen.type, listen.attrs);
  const int32_t mode = parsed.listen.distributed_mode;
  if (mode == static_cast<int32_t>(fluid::ServerMode::kSync)) {
    throw_error(ErrorCode::kNotSupported, {.what = "this server trains asynchronously",
                                           .where = "listen_and_serv",
                                           .expected = "distributed_mode 1, 2 or 3",
                                           .got = str_cat("distributed_mode ", mode),
                                           .fix = "transpile with sync_mode false"});
  }
  for (const auto& binding : parsed.listen.grad_to_block_id) {
    parsed.blocks.push_back(read_block(program, binding, trainers));
  }
  std::sort(parsed.blocks.begin(), parsed.blocks.end(),
            [](const auto& a, const auto& b) { return a.value < b.value; });
  return parsed;
}

AsyncServerSteps::AsyncServerSteps(const fluid::Program& program, AsyncServerProgram parsed,
                                   fluid::Scope& scope)
    : program_(program),
      parsed_(std::move(parsed)),
      scope_(scope),
      executor_(fluid::CPUPlace(), scope) {
  program_.set_runtime(nullptr);
  executor_.set_finite_watch(&watch_);
  read_schedule();
}

// The server counts itself, so that every gradient counts once, with the gradient.
void AsyncServerSteps::read_schedule() {
  if (parsed_.listen.lr_decay_block_id < 0) return;
  fluid::Block& block = program_.block(parsed_.listen.lr_decay_block_id);
  for (size_t i = 0; i < block.op_count(); ++i) {
    const fluid::Operator& op = block.op(i);
    if (!counts_steps(op) || initialised(scope_, fluid::kStepCounter) == nullptr) continue;
    counter_ = fluid::kStepCounter;
    block.remove_op(i);
    return;
  }
}

void AsyncServerSteps::run_rate(uint64_t gradients) {
  if (!counter_.empty()) {
    // Now, as workers may have assigned it.
    if (!counter_start_) counter_start_ = number_in(scope_.tensor(counter_));
    const auto first = static_cast<double>(program_.distribution().lr_first_count);
    // A counter that nobody has counted with yet is negative; one of a model says its last step.
    const double before = *counter_start_ < 0 ? *counter_start_ + first : *counter_start_;
    set_number(scope_.tensor(counter_), std::max(before + static_cast<double>(gradients), first));
  }
  executor_.run_block(program_, parsed_.listen.lr_decay_block_id, scope_);
}

void AsyncServerSteps::run_slice(const AsyncOptimizeBlock& block, uint64_t step) {
  executor_.run_block(program_, block.block, scope_, step);
  if (!block.plain) return;
  watch_.look_at(block.value, scope_.tensor(block.value), scope_.var(block.gradient), step);
}

void AsyncServerSteps::add_slice(size_t index, ServerModel& model) {
  const AsyncOptimizeBlock& block = parsed_.blocks[index];
  require_initial_value(scope_, block.value);
  CatalogueEntry entry = catalogue_entry(program_, scope_, block.value);
  entry.gradient = block.gradient;
  entry.rows = has_row_gradient(program_, block.gradient);
  entry.lookup = lookup_of(program_, parsed_.listen, block.value);
  make_gradient(entry, scope_);
  for (const auto& name : block.backups) {
    scope_.var(name).emplace<fluid::Tensor>(scope_.tensor(block.value));
  }
  if (!block.trainer_id.empty()) {
    scope_.var(block.trainer_id).emplace<fluid::Tensor>(fluid::Tensor::scalar<int64_t>(0));
  }
  auto state = updated_state(program_, scope_, {block.block}, block.value, block.gradient);
  model.shards.push_back(
      std::make_unique<DenseShard>(DenseShardSpec{block.value, block.gradient, std::move(state)},
                                   scope_, [this, index](const StepUpdate& update) {
                                     run_slice(parsed_.blocks[index], update.step - 1);
                                   }));
  model.catalogue.entries.push_back(std::move(entry));
}

// Whatever else outlives a step may be read, for checkpoints.
void AsyncServerSteps::add_readable(ServerModel& model) {
  std::set<std::string> taken;
  for (const auto& block : parsed_.blocks) {
    taken.insert({block.value, block.gradient, block.trainer_id});
    taken.insert(block.backups.begin(), block.backups.end());
  }
  for (const fluid::VarDesc* desc : program_.global_block().vars()) {
    if (!desc->persistable || taken.contains(desc->name) ||
        initialised(scope_, desc->name) == nullptr) {
      continue;
    }
    model.catalogue.entries.push_back(catalogue_entry(program_, scope_, desc->name));
  }
}

void AsyncServerSteps::note_value(uint32_t worker, uint32_t slice, const fluid::Tensor& value) {
  Backup& backup = backups_[slice];
  if (backup.trainers.empty()) return;
  *backup.trainers[worker] = value;
  backup.own[worker] = false;
}

// The other rows stay as the trainer saw them.
void AsyncServerSteps::note_rows(uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                                 const fluid::Tensor& value) {
  Backup& backup = backups_[slice];
  if (backup.trainers.empty() || rows.empty()) return;
  fluid::Tensor& seen = *backup.trainers[worker];
  if (!backup.own[worker]) seen = seen.clone();
  backup.own[worker] = true;
  const uint64_t row_bytes = value.bytes() / static_cast<uint64_t>(value.shape()[0]);
  for (const int64_t row : rows) {
    const uint64_t at = static_cast<uint64_t>(row) * row_bytes;
    std::memcpy(seen.raw() + at, value.raw() + at, row_bytes);
  }
}

AsyncServerModel AsyncServerSteps::make_model() {
  AsyncServerModel model;
  model.server.watch = &watch_;
  for (size_t i = 0; i < parsed_.blocks.size(); ++i) add_slice(i, model.server);
  model.server.catalogue.trained = static_cast<uint32_t>(model.server.shards.size());
  add_readable(model.server);
  for (const auto& entry : model.server.catalogue.entries) {
    model.server.tensors.push_back(&scope_.tensor(entry.name));
  }
  model.server.saved_tables = saved_tables(program_, parsed_.listen);
  if (parsed_.listen.lr_decay_block_id >= 0) {
    model.server.learning_rate = [this](uint64_t gradients) { run_rate(gradients); };
  }
  bool compensates = false;
  for (const auto& block : parsed_.blocks) {
    Backup& backup = backups_.emplace_back();
    for (const auto& name : block.backups) backup.trainers.push_back(&scope_.tensor(name));
    backup.own.resize(block.backups.size(), false);
    if (block.backups.empty()) continue;
    compensates = true;
    backup.trainer_id = &scope_.tensor(block.trainer_id);
  }
  if (compensates) {
    model.on_value = [this](uint32_t worker, uint32_t slice, const fluid::Tensor& value) {
      note_value(worker, slice, value);
    };
    model.on_rows = [this](uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                           const fluid::Tensor& value) { note_rows(worker, slice, rows, value); };
    model.on_sender = [this](uint32_t worker) {
      for (Backup& backup : backups_) {
        if (backup.trainer_id != nullptr) {
          *backup.trainer_id->data<int64_t>() = static_cast<int64_t>(worker);
        }
      }
    };
  }
  return model;
}

}  // namespace fleet::strategies
