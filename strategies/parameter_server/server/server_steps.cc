#include "strategies/parameter_server/server/server_steps.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "fluid/ops/distributed/names.h"
#include "strategies/parameter_server/server/server_variables.h"

namespace fleet::strategies {
namespace {

fluid::ExecutorOptions beside_lanes(uint32_t lanes) {
  fluid::ExecutorOptions options = fluid::with_environment({});
  options.op_threads = std::max(1, *options.op_threads - static_cast<int>(lanes) + 1);
  return options;
}

}  // namespace

ServerSteps::ServerSteps(const fluid::Program& program, fluid::ServerProgram parsed,
                         fluid::Scope& scope, uint32_t lanes)
    : program_(program),
      parsed_(std::move(parsed)),
      scope_(scope),
      executor_(fluid::CPUPlace(), scope, beside_lanes(lanes)) {
  std::sort(parsed_.slices.begin(), parsed_.slices.end(),
            [](const auto& a, const auto& b) { return a.value < b.value; });
  executor_.set_finite_watch(&watch_);
  for (size_t i = 0; i < parsed_.slices.size(); ++i) slice_executors_.push_back(executor_.share());
  full_ = &program_for(parsed_.contributors);
  for (int32_t i = 1; i < full_->block_count(); ++i) make_kept(full_->block(i));
  for (const auto& exchange : parsed_.exchanges) {
    for (const auto& rows : exchange.rows) {
      scope_.var(rows.whole);
      for (const auto& part : rows.parts) scope_.var(part);
    }
  }
}

// What a block keeps in the scope or finds there is made before any runs: slices may be updated
// beside each other, and then no one may make variables.
void ServerSteps::make_kept(const fluid::Block& block) {
  std::set<std::string> made;
  const auto make = [&](const std::string& name) {
    if (!name.empty() && scope_.find(name) == nullptr) scope_.var(name);
  };
  for (const auto& op : block.ops()) {
    for (const auto& name : op->input_names()) {
      if (!made.contains(name)) make(name);
    }
    for (const auto& name : op->output_names()) {
      const fluid::VarDesc* desc = block.find_var_recursive(name);
      if (desc != nullptr && desc->persistable) make(name);
      made.insert(name);
    }
  }
}

const fluid::Program& ServerSteps::program_for(int contributors) {
  const std::lock_guard lock(programs_mutex_);
  auto& program = programs_[contributors];
  if (!program) {
    program = std::make_unique<fluid::Program>(executable(program_, parsed_, contributors));
  }
  return *program;
}

// `count`: of the gradients that an asynchronous server has had, this one included.
void ServerSteps::run_rate(uint64_t count) {
  const fluid::ServerSchedule& schedule = parsed_.schedule;
  const bool in_step = is_synchronous(parsed_.mode);
  if (in_step && schedule.sums_trainers) {
    fluid::Tensor& counter = scope_.tensor(fluid::kStepCounter);
    set_number(counter, counter.item<double>() + 1);
  } else if (!in_step && schedule.counter >= 0) {
    fluid::Tensor& counter = scope_.tensor(fluid::kStepCounter);
    // Now, as workers may have assigned it.
    if (!counter_start_) counter_start_ = counter.item<double>();
    const auto first = static_cast<double>(program_.distribution().lr_first_count);
    // A counter that nobody has counted with yet is negative; one of a model says its last step.
    const double before = *counter_start_ < 0 ? *counter_start_ + first : *counter_start_;
    set_number(counter, std::max(before + static_cast<double>(count), first));
  }
  executor_.run_block(*full_, schedule.block, scope_);
}

// A slice whose update has a mean over contributors takes that over those who did contribute.
void ServerSteps::run_slice(size_t index, const StepUpdate& update) {
  const fluid::ServerSlice& slice = parsed_.slices[index];
  const int32_t block = slice.chain[static_cast<size_t>(update.stage)];
  const bool in_step = is_synchronous(parsed_.mode);
  if (in_step && update.shards == 0) return clear_parts(block);
  const bool all = !in_step || update.shards == parsed_.contributors;
  const fluid::Program& program = all ? *full_ : program_for(update.shards);
  const uint64_t step = steps_before_ + update.step - 1;
  slice_executors_[index].run_block(program, block, scope_, step);
  if (!slice.plain) return;
  watch_.look_at(slice.value, scope_.tensor(slice.value), scope_.var(slice.gradient), step);
}

// Nobody contributed: what the block would make for an exchange is zero.
void ServerSteps::clear_parts(int32_t block) {
  std::set<std::string> names;
  for (const auto& op : program_.block(block).ops()) {
    const auto outputs = op->output_names();
    names.insert(outputs.begin(), outputs.end());
  }
  for (const auto& exchange : parsed_.exchanges) {
    for (const auto& rows : exchange.rows) {
      for (size_t i = 0; i < rows.parts.size(); ++i) {
        if (!names.contains(rows.parts[i])) continue;
        const fluid::VarDesc& whole = program_.global_block().var(rows.whole);
        fluid::Shape shape = whole.shape;
        shape.set(0, rows.rows[i]);
        auto& tensor = scope_.var(rows.parts[i]).emplace<fluid::Tensor>(whole.dtype, shape);
        std::memset(tensor.raw(), 0, tensor.bytes());
      }
    }
  }
}

transport::MutableBytes ServerSteps::place_of(const fluid::ExchangedRows& rows, size_t part) {
  const fluid::VarDesc& desc = program_.global_block().var(rows.whole);
  fluid::Value& value = scope_.var(rows.whole);
  auto* tensor = std::get_if<fluid::Tensor>(&value);
  if (tensor == nullptr || !tensor->initialized() || !(tensor->shape() == desc.shape)) {
    tensor = &value.emplace<fluid::Tensor>(desc.dtype, desc.shape);
  }
  const size_t row_bytes = tensor->bytes() / static_cast<size_t>(desc.shape[0]);
  const int64_t before =
      std::accumulate(rows.rows.begin(), rows.rows.begin() + static_cast<long>(part), int64_t{0});
  return {tensor->raw() + static_cast<size_t>(before) * row_bytes,
          static_cast<size_t>(rows.rows[part]) * row_bytes};
}

StepExchange ServerSteps::make_exchange(size_t index) {
  const fluid::ExchangeBlock& block = parsed_.exchanges[index];
  StepExchange exchange;
  std::vector<std::pair<size_t, size_t>> places;  // position among the rows, part
  for (size_t i = 0; i < block.rows.size(); ++i) {
    const fluid::ExchangedRows& rows = block.rows[i];
    for (size_t part = 0; part < rows.parts.size(); ++part) {
      places.emplace_back(i, part);
      exchange.parts.push_back({rows.parts[part], rows.servers[part], place_of(rows, part).size()});
    }
  }
  const auto made = [this, &block, places](size_t at) {
    const auto [i, part] = places[at];
    return scope_.tensor(block.rows[i].parts[part]);
  };
  const auto place = [this, &block, places](size_t at) {
    const auto [i, part] = places[at];
    return place_of(block.rows[i], part);
  };
  exchange.made = made;
  exchange.place = place;
  exchange.run = [this, &block] { executor_.run_block(*full_, block.block, scope_); };
  return exchange;
}

// The sum of the trainers' counters begins below 0, where no model has said a last step.
void ServerSteps::start_counting() {
  if (!is_synchronous(parsed_.mode) || !parsed_.schedule.sums_trainers) return;
  if (initialised(scope_, fluid::kStepCounter) == nullptr) return;
  fluid::Tensor& counter = scope_.tensor(fluid::kStepCounter);
  if (counter.item<double>() >= 0) return;
  set_number(counter, static_cast<double>(program_.distribution().lr_first_count - 1));
}

void ServerSteps::add_slice(size_t index, ServerModel& model) {
  const fluid::ServerSlice& slice = parsed_.slices[index];
  require_initial_value(scope_, slice.value);
  ParameterEntry entry = parameter_entry(program_, scope_, slice.value);
  entry.gradient = slice.gradient;
  entry.rows = slice.rows;
  entry.lookup = slice.lookup;
  make_gradient(entry, scope_);
  auto state = updated_state(program_, scope_, slice.chain, slice.value, slice.gradient);
  std::vector<ValueChange> changes;
  for (const int32_t block : slice.chain) changes.push_back(change_by(*full_, block, slice));
  model.shards.push_back(std::make_unique<StateShard>(
      StateShardSpec{slice.value, slice.gradient, std::move(state), std::move(changes)}, scope_,
      [this, index](const StepUpdate& update) { run_slice(index, update); },
      static_cast<int>(slice.chain.size())));
  model.parameter_index.entries.push_back(std::move(entry));
}

ServerModel ServerSteps::make_model() {
  start_counting();
  ServerModel model;
  model.watch = &watch_;
  std::set<std::string> taken;
  for (size_t i = 0; i < parsed_.slices.size(); ++i) {
    add_slice(i, model);
    taken.insert({parsed_.slices[i].value, parsed_.slices[i].gradient});
  }
  model.parameter_index.trained = static_cast<uint32_t>(model.shards.size());
  // Whatever else outlives a step may be read, for checkpoints.
  for (const fluid::VarDesc* desc : program_.global_block().vars()) {
    if (!desc->persistable || taken.contains(desc->name) ||
        initialised(scope_, desc->name) == nullptr) {
      continue;
    }
    model.parameter_index.entries.push_back(parameter_entry(program_, scope_, desc->name));
  }
  for (const auto& entry : model.parameter_index.entries) {
    model.tensors.push_back(entry.growing ? &no_tensor_ : &scope_.tensor(entry.name));
  }
  for (size_t i = 0; i < parsed_.exchanges.size(); ++i) {
    model.exchanges.push_back(make_exchange(i));
  }
  model.saved_tables = parsed_.saved_tables;
  if (parsed_.schedule.block >= 0) {
    model.learning_rate = [this](uint64_t count) { run_rate(count); };
  }
  model.steps_before = [this](uint64_t steps) { steps_before_ = steps; };
  if (!is_synchronous(parsed_.mode)) backups_.emplace(parsed_.slices, scope_).watch(model);
  return model;
}

}  // namespace fleet::strategies
