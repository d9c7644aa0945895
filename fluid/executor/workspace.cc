#include "fluid/executor/workspace.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/nonfinite.h"
#include "fluid/executor/block_runner.h"
#include "fluid/executor/profile.h"
#include "fluid/executor/shard_feeds.h"
#include "fluid/executor/shard_threads.h"
#include "fluid/kernels/device_kernels.h"
#include "fluid/kernels/shard_rows.h"

namespace fleet::fluid {
namespace {

// Elements [begin, end) of the tree sum of the shards' tensors, times 1 / their number, in the
// tensors' own type. `out` may be one of them.
template <class T>
void tree_mean_as(const std::vector<Tensor>& shards, Tensor& out, int64_t begin, int64_t end) {
  std::vector<const T*> arrays;
  arrays.reserve(shards.size());
  for (const Tensor& shard : shards) arrays.push_back(shard.data<T>() + begin);
  T* result = out.data<T>() + begin;
  const auto n = static_cast<size_t>(end - begin);
  tree_sum<T>(arrays, result, n);
  const T factor = T{1} / static_cast<T>(shards.size());
  for (size_t i = 0; i < n; ++i) result[i] *= factor;
}

void check_shards(const std::vector<Tensor>& shards, const std::string& name) {
  for (const Tensor& shard : shards) {
    if (shard.shape() == shards.front().shape() && shard.dtype() == shards.front().dtype())
      continue;
    throw_error(ErrorCode::kShapeMismatch, {.what = "the shards of a step made different shapes",
                                            .where = "variable '" + name + "'",
                                            .expected = shards.front().shape().to_string(),
                                            .got = shard.shape().to_string(),
                                            .fix = "use one logical shard for this program"});
  }
  const DType dtype = shards.front().dtype();
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return;
  throw_error(ErrorCode::kDTypeMismatch, {.what = "only float32 and float64 are averaged",
                                          .where = "variable '" + name + "'",
                                          .expected = "float32 or float64",
                                          .got = std::string(dtype_name(dtype)),
                                          .fix = "cast it in the program"});
}

void tree_mean(const std::vector<Tensor>& shards, Tensor& out, int64_t begin, int64_t end) {
  if (out.dtype() == DType::kFloat32) return tree_mean_as<float>(shards, out, begin, end);
  tree_mean_as<double>(shards, out, begin, end);
}

void tree_mean(const std::vector<Tensor>& shards, const std::string& name, Tensor& out) {
  check_shards(shards, name);
  out.reset(shards.front().dtype(), shards.front().shape());
  tree_mean(shards, out, 0, out.numel());
}

const Tensor& dense(const Value& value, const std::string& name) {
  const auto* tensor = std::get_if<Tensor>(&value);
  if (tensor != nullptr && tensor->initialized()) return *tensor;
  throw_error(ErrorCode::kInvalidProgram, {.what = "the variable holds no dense tensor",
                                           .where = "variable '" + name + "'",
                                           .expected = "a dense tensor",
                                           .got = "another kind of value, or no value yet",
                                           .fix = "run the startup program first"});
}

// The number that an op makes whose role says that it is the loss; -1 for others.
int loss_of(const Plan& plan, const PlanOp& op) {
  if (!plan.sharded() || op.op->role != (OpRole::kForward | OpRole::kLoss)) return -1;
  const auto found = std::find_if(op.outputs.begin(), op.outputs.end(), [&](int i) {
    const VarDesc* desc = i < 0 ? nullptr : plan.vars()[static_cast<size_t>(i)].desc;
    return desc != nullptr && desc->shape.rank() == 1 && desc->shape[0] == 1;
  });
  return found == op.outputs.end() ? -1 : *found;
}

// Tells the step's watch, if the value is a tensor with an element that is not finite.
void tell_nonfinite(const Workspace::Step& step, Nonfinite::What what, const std::string& name,
                    const Value* value) {
  const auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
  const auto found = tensor == nullptr ? std::nullopt : first_nonfinite(*tensor);
  if (!found) return;
  step.watch->on_nonfinite({.what = what, .variable = name, .value = *found, .step = step.number});
}

[[noreturn]] void throw_kept(std::string what, std::string where, const std::string& table) {
  throw_error(ErrorCode::kPrecondition,
              {.what = std::move(what),
               .where = std::move(where),
               .expected = "lookups of rows of '" + table + "'",
               .got = "all of it",
               .fix = "look rows up by lookup_table, or gather the whole with save_persistables or "
                      "save_inference_model of fleet"});
}

}  // namespace

Workspace::Workspace(std::shared_ptr<const Plan> plan, Scope& scope, Workspace* outer,
                     Statistics statistics)
    : plan_(std::move(plan)), scope_(scope), outer_(outer) {
  const auto& vars = plan_->vars();
  own_.resize(vars.size());
  for (size_t i = 0; i < vars.size(); ++i) {
    Value* found = nullptr;
    if (vars[i].outer && outer_ != nullptr) found = outer_->find(vars[i].name);
    const bool whole = plan_->whole_step() || (plan_->inner() && !vars[i].outer);
    const bool looks = found == nullptr && (vars[i].in_scope || !whole);
    if (looks) found = scope_.find(vars[i].name);
    if (vars[i].in_scope && found == nullptr) found = &scope_.var(vars[i].name);
    values_.push_back(found != nullptr ? found : &own_[i]);
  }
  if (statistics == Statistics::kOwn) {
    for (const int i : plan_->statistics())
      values_[static_cast<size_t>(i)] = &own_[static_cast<size_t>(i)];
  }
  scope_revision_ = scope_.revision();
  buffers_.resize(static_cast<size_t>(plan_->buffer_count()));
  const Place place = plan_->key().place;
  nonfinite_word_ = outer_ != nullptr ? outer_->nonfinite_word_ : make_shared_word(place);
  if (outer_ != nullptr) {
    stream_ = outer_->stream_;
  } else if (!place.is_cpu()) {
    stream_ = {create_stream(place), [place](void* stream) { destroy_stream(place, stream); }};
  }
  tokens_.resize(plan_->ops().size());
  contributions_.resize(plan_->per_shard().size());
  row_contributions_.resize(plan_->per_shard().size());
  statistics_begin_.resize(plan_->statistics().size());
  statistics_.resize(plan_->statistics().size());
  fetched_.resize(plan_->fetches().size());
  refuse_kept_fetches();
  for (size_t k = 0; k < plan_->ops().size(); ++k) add_runner(k);
}

Workspace::~Workspace() = default;

// Whether the rows that op k looks up are with a keeper. Throws when it reads another's table in
// another way: here are zeros.
bool Workspace::takes_kept_table(size_t k) {
  const PlanOp& op = plan_->ops()[k];
  // What goes back takes the rows that forward brought, or the table's shape.
  if (op.communication || op.fetches_table || has_role(op.op->role, OpRole::kBackward))
    return false;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const PlanVar& var = plan_->vars()[static_cast<size_t>(op.inputs[i])];
    const auto* keeper = var.in_scope ? scope_.keeper(var.name) : nullptr;
    if (keeper == nullptr) continue;
    if (static_cast<int>(i) != op.table) {
      throw_kept("an op reads a whole table, whose rows are on the servers", op.op->to_string(),
                 var.name);
    }
    kept_tables_[static_cast<int>(k)] = *keeper;
  }
  return kept_tables_.contains(static_cast<int>(k));
}

void Workspace::refuse_kept_fetches() const {
  for (const PlanFetch& fetch : plan_->fetches()) {
    const PlanVar& var = plan_->vars()[static_cast<size_t>(fetch.var)];
    if (!var.in_scope || scope_.keeper(var.name) == nullptr) continue;
    throw_kept("a table is fetched, whose rows are on the servers", "Executor::run", var.name);
  }
}

// Tables that the program makes the shape of, and that the job's servers have.
void Workspace::leave_to(CommRuntime& runtime) {
  const auto& placed = plan_->program().distribution().vars;
  for (const PlanOp& op : plan_->ops()) {
    if (!op.schema->leaves_values_to_servers) continue;
    const std::string& name = op.op->output("Out").front();
    const bool kept = std::any_of(placed.begin(), placed.end(),
                                  [&name](const auto& part) { return part.origin == name; });
    if (kept) scope_.set_keeper(name, runtime.weak_from_this());
  }
}

void Workspace::add_runner(size_t k) {
  const PlanOp& op = plan_->ops()[k];
  std::vector<Value*> inputs;
  std::vector<Value*> outputs;
  for (const int i : op.inputs) inputs.push_back(values_[static_cast<size_t>(i)]);
  for (const int i : op.outputs) {
    outputs.push_back(i < 0 ? nullptr : values_[static_cast<size_t>(i)]);
  }
  const bool kept = takes_kept_table(k);
  const bool remote = op.communication || (kept && op.schema->gives_table_rows);
  const bool calls = remote || op.fetches_table || kept;
  comm_inputs_.push_back(calls ? inputs : std::vector<Value*>());
  comm_outputs_.push_back(remote ? outputs : std::vector<Value*>());
  losses_.push_back(loss_of(*plan_, op));
  runners_.emplace_back();
  block_runners_.emplace_back();
  if (op.block != nullptr) {
    block_runners_.back() = BlockRunner::make(*this, static_cast<int>(k));
  } else if (!remote) {
    runners_.back() =
        std::make_unique<OpRunner>(*plan_, op, std::move(inputs), std::move(outputs), buffers_,
                                   scratch_, stream_.get(), nonfinite_word_.get());
  }
}

Value* Workspace::find(std::string_view name) {
  if (const int i = plan_->find_var(name); i >= 0) return values_[static_cast<size_t>(i)];
  return outer_ == nullptr ? nullptr : outer_->find(name);
}

// Arrays that the run fills begin without elements; others were given.
void Workspace::clear_arrays() {
  for (size_t i = 0; i < own_.size(); ++i) {
    auto* array = std::get_if<TensorArray>(&own_[i]);
    if (array != nullptr && plan_->vars()[i].written) array->clear();
  }
}

void Workspace::run_inner(const Step& step, int shard) {
  clear_arrays();
  run_ops(step, 0, static_cast<int>(plan_->ops().size()), shard);
}

// What was loaded from files, or computed elsewhere, comes to the plan's device.
void Workspace::fetch_persistables_in() {
  const Place& place = plan_->key().place;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!plan_->vars()[i].in_scope) continue;
    auto* tensor = std::get_if<Tensor>(values_[i]);
    if (tensor == nullptr || !tensor->initialized() || tensor->place() == place) continue;
    *tensor = tensor->copy_to(place);
  }
}

void Workspace::bind_feeds(const Step& step, int part, int parts) {
  for (size_t i = 0; i < plan_->vars().size(); ++i) {
    const PlanVar& var = plan_->vars()[i];
    if (var.feed < 0) continue;
    const Tensor& fed = step.feeds[static_cast<size_t>(var.feed)];
    const bool cut = parts > 1 && var.desc->shape.rank() > 0 && var.desc->shape[0] < 0;
    Tensor bound = cut ? part_of_feed(fed, part, parts) : fed;
    const Place& place = plan_->key().place;
    const bool moves = !(bound.place() == place);
    own_[i] = moves || var.fed_and_written ? bound.copy_to(place) : std::move(bound);
  }
}

void Workspace::release_feeds() {
  for (size_t i = 0; i < plan_->vars().size(); ++i) {
    if (plan_->vars()[i].feed >= 0) own_[i] = std::monostate();
  }
}

void Workspace::wait_for(int k) {
  auto& token = tokens_[static_cast<size_t>(k)];
  if (token == nullptr) return;
  token->wait();
  token.reset();
}

void Workspace::run_communication(const Step& step, int k, int shard) {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  wait_for(k);
  std::shared_ptr<Keeper> keeper;
  CommRuntime* runtime = step.runtime;
  if (const auto kept = kept_tables_.find(k); kept != kept_tables_.end()) {
    keeper = kept->second.lock();
    runtime = dynamic_cast<CommRuntime*>(keeper.get());
  }
  if (runtime == nullptr) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "this op needs a communication runtime and none is attached",
                 .where = op.op->to_string(),
                 .expected = "a program from fleet's minimize, or strategies::attach(exe, …)",
                 .got = "a plain Executor, or the runtime of a job that is over",
                 .fix = "call strategies::attach on the executor, or use fleet"});
  }
  const CommCall call = {.program = plan_->program(),
                         .block = plan_->block(),
                         .op = *op.op,
                         .scope = scope_,
                         .inputs = comm_inputs_[static_cast<size_t>(k)],
                         .outputs = comm_outputs_[static_cast<size_t>(k)],
                         .step = step.number,
                         .shard = shard};
  tokens_[static_cast<size_t>(k)] = runtime->run(call);
}

void Workspace::check_finite(const Step& step, int k) {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  for (const int i : op.outputs) {
    if (i < 0) continue;
    const auto* tensor = std::get_if<Tensor>(&value(i));
    if (tensor == nullptr || !tensor->initialized()) continue;
    if (!first_nonfinite(*tensor)) continue;
    throw_error(ErrorCode::kNumerics,
                {.what = "a value became infinite or not a number",
                 .where = str_cat("variable '", plan_->vars()[static_cast<size_t>(i)].name,
                                  "', written by ", op.op->to_string(), ", in step ", step.number),
                 .expected = "finite values",
                 .got = tensor->to_string(8),
                 .fix = "lower the learning rate, clip the gradients, or check the data"});
  }
}

// The sum of what was written may be infinite where no element is.
void Workspace::watch_finite(const Step& step, int k) {
  const int loss = losses_[static_cast<size_t>(k)];
  if (loss >= 0) {
    tell_nonfinite(step, Nonfinite::What::kLoss, plan_->vars()[static_cast<size_t>(loss)].name,
                   &value(loss));
  }
  const OpRunner* runner = runners_[static_cast<size_t>(k)].get();
  if (runner == nullptr || std::isfinite(runner->written())) return;
  for (const std::string& name : plan_->ops()[static_cast<size_t>(k)].op->output("ParamOut")) {
    tell_nonfinite(step, Nonfinite::What::kParameter, name, find(name));
  }
}

// Of the whole step, when some update said that it wrote what is not finite.
void Workspace::watch_updates(const Step& step, const Plan& plan) {
  for (const PlanOp& op : plan.ops()) {
    if (op.block != nullptr) watch_updates(step, *op.block);
    for (const std::string& name : op.op->output("ParamOut")) {
      const Value* made = find(name);
      tell_nonfinite(step, Nonfinite::What::kParameter, name,
                     made != nullptr ? made : scope_.find(name));
    }
  }
}

void Workspace::run_ops(const Step& step, int begin, int end, int shard) {
  if (step.profile == nullptr) {
    for (int k = begin; k < end; ++k) run_op(step, k, shard);
  } else {
    for (int k = begin; k < end; ++k) measure_op(step, k, shard);
  }
}

void Workspace::run_op(const Step& step, int k, int shard) {
  OpRunner* runner = runners_[static_cast<size_t>(k)].get();
  if (BlockRunner* block = block_runners_[static_cast<size_t>(k)].get()) {
    block->run(step, shard);
    if (step.watch != nullptr) watch_finite(step, k);
    return;
  }
  if (runner == nullptr) {
    run_communication(step, k, shard);
    return;
  }
  if (plan_->communicates()) {
    for (const int other : plan_->ops()[static_cast<size_t>(k)].waits) wait_for(other);
  }
  if (!comm_inputs_[static_cast<size_t>(k)].empty()) run_communication(step, k, shard);
  runner->run(step.number, shard);
  if (step.check_nan_inf) check_finite(step, k);
  if (step.watch != nullptr) watch_finite(step, k);
}

void Workspace::measure_op(const Step& step, int k, int shard) {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  Profile::Call call{.step = step.number};
  if (plan_->communicates() && !op.waits.empty()) {
    call.type = "wait";
    call.begin = steady_clock().now();
    for (const int other : op.waits) wait_for(other);
    call.end = steady_clock().now();
    step.profile->add(call);
  }
  call.begin = steady_clock().now();
  run_op(step, k, shard);
  call.end = steady_clock().now();
  call.type = op.op->type;
  const auto shapes_of = [&](const std::vector<int>& vars) {
    std::vector<std::vector<int64_t>> shapes;
    for (const int var : vars) {
      const Tensor* tensor = var < 0 ? nullptr : std::get_if<Tensor>(&value(var));
      const bool filled = tensor != nullptr && tensor->initialized();
      if (filled) call.bytes += static_cast<double>(tensor->bytes());
      shapes.push_back(filled ? tensor->shape().to_vector() : std::vector<int64_t>());
    }
    return shapes;
  };
  const auto inputs = shapes_of(op.inputs);
  const auto outputs = shapes_of(op.outputs);
  call.flops = flops_of(*op.op, inputs, outputs);
  if (const auto names = op.op->output_names(); !names.empty()) call.makes = names.front();
  step.profile->add(std::move(call));
}

// A copy, when the lane will run another part.
void Workspace::keep_shard(const Workspace& lane, int part, bool copies) {
  const auto at = static_cast<size_t>(part);
  const auto& sums = plan_->per_shard();
  for (size_t i = 0; i < sums.size(); ++i) {
    const Value& made = lane.value(sums[i]);
    if (const auto* rows = std::get_if<SelectedRows>(&made)) {
      row_contributions_[i][at] = {
          .rows = rows->rows, .height = rows->height, .value = rows->value.clone()};
      continue;
    }
    const Tensor& tensor = dense(made, plan_->vars()[static_cast<size_t>(sums[i])].name);
    Tensor& slot = contributions_[i][at];
    if (!copies) {
      slot = tensor;
      continue;
    }
    slot.reset(tensor.dtype(), tensor.shape());
    slot.copy_from(tensor);
  }
}

void Workspace::join_on_host() {
  const auto& sums = plan_->per_shard();
  for (size_t i = 0; i < sums.size(); ++i) {
    auto* out = std::get_if<Tensor>(&value(sums[i]));
    if (out == nullptr) continue;
    Tensor mean;
    tree_mean(contributions_[i], plan_->vars()[static_cast<size_t>(sums[i])].name, mean);
    out->copy_from(mean);
  }
}

// Each lane adds up its elements of every gradient.
void Workspace::join_shards(int lanes) {
  const auto& sums = plan_->per_shard();
  for (size_t i = 0; i < sums.size(); ++i) {
    if (std::holds_alternative<SelectedRows>(value(sums[i]))) {
      value(sums[i]) = mean_of_rows(row_contributions_[i]);
    } else {
      check_shards(contributions_[i], plan_->vars()[static_cast<size_t>(sums[i])].name);
    }
  }
  if (!plan_->key().place.is_cpu()) return join_on_host();
  const auto join = [&](int lane) {
    for (size_t i = 0; i < sums.size(); ++i) {
      auto* out = std::get_if<Tensor>(&value(sums[i]));
      if (out == nullptr) continue;
      const int64_t n = out->numel();
      tree_mean(contributions_[i], *out, n * lane / lanes, n * (lane + 1) / lanes);
    }
  };
  if (lanes == 1) return join(0);
  threads_->run(join);
}

void Workspace::save_statistics(int parts) {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    statistics_[i].resize(static_cast<size_t>(parts));
    const auto* now = std::get_if<Tensor>(&value(plan_->statistics()[i]));
    if (now == nullptr || !now->initialized()) continue;
    statistics_begin_[i].reset(now->dtype(), now->shape());
    statistics_begin_[i].copy_from(*now);
  }
}

// Every shard starts from the same value.
void Workspace::begin_statistics(Workspace& lane) {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    const Tensor& begin = statistics_begin_[i];
    if (!begin.initialized()) continue;
    Value& value = lane.value(plan_->statistics()[i]);
    if (!std::holds_alternative<Tensor>(value)) value = Tensor();
    auto& now = *std::get_if<Tensor>(&value);
    if (!now.initialized()) now.reset(begin.dtype(), begin.shape());
    now.copy_from(begin);
  }
}

void Workspace::keep_statistics(const Workspace& lane, int part) {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    const auto* now = std::get_if<Tensor>(&lane.value(plan_->statistics()[i]));
    if (now == nullptr || !now->initialized()) continue;
    Tensor& made = statistics_[i][static_cast<size_t>(part)];
    made.reset(now->dtype(), now->shape());
    made.copy_from(*now);
  }
}

void Workspace::join_statistics() {
  for (size_t i = 0; i < statistics_.size(); ++i) {
    if (!statistics_begin_[i].initialized()) continue;
    const int var = plan_->statistics()[i];
    Tensor mean;
    tree_mean(statistics_[i], plan_->vars()[static_cast<size_t>(var)].name, mean);
    std::get_if<Tensor>(&value(var))->copy_from(mean);
  }
}

// One shard of home's step; what it made is kept there.
void Workspace::run_shard(Workspace& home, const Step& step, int part, int parts) {
  bind_feeds(step, part, parts);
  if (parts > 1) home.begin_statistics(*this);
  clear_arrays();
  const int shard = plan_->sharded() ? step.shards.begin + part : -1;
  run_ops(step, plan_->head(), plan_->tail(), shard);
  if (parts == 1) return;
  const bool copies = home.lanes_.size() + 1 < static_cast<size_t>(parts);
  if (step.runtime == nullptr) home.keep_shard(*this, part, copies);
  home.keep_statistics(*this, part);
  for (size_t i = 0; i < home.fetched_.size(); ++i) {
    const PlanFetch& fetch = plan_->fetches()[i];
    if (home.fetched_[i].empty()) continue;
    const std::string& name = plan_->vars()[static_cast<size_t>(fetch.var)].name;
    home.fetched_[i][static_cast<size_t>(part)] = dense(value(fetch.var), name).copy_to(CPUPlace());
  }
}

void Workspace::run_shards(const Step& step, int parts) {
  const auto count = static_cast<size_t>(parts);
  if (parts > 1) {
    save_statistics(parts);
    for (auto& kept : contributions_) kept.resize(count);
    for (auto& kept : row_contributions_) kept.resize(count);
    for (size_t i = 0; i < fetched_.size(); ++i) {
      const PlanFetch::Kind kind = plan_->fetches()[i].kind;
      const bool per_shard = kind == PlanFetch::Kind::kMean || kind == PlanFetch::Kind::kRows;
      if (per_shard) fetched_[i].resize(count);
    }
  }
  const bool apart =
      plan_->shards_are_apart() && step.runtime == nullptr && plan_->key().place.is_cpu();
  const int threads = apart ? std::min(step.threads, parts) : 1;
  if (threads == 1) {
    for (int part = 0; part < parts; ++part) run_shard(*this, step, part, parts);
  } else {
    if (threads_ == nullptr) {  // an executor has as many shards and threads in every step
      for (int lane = 1; lane < threads; ++lane) {
        lanes_.push_back(std::make_unique<Workspace>(plan_, scope_, nullptr, Statistics::kOwn));
      }
      threads_ = std::make_unique<ShardThreads>(threads - 1);
    }
    threads_->run([&](int lane) {
      Workspace& workspace = lane == 0 ? *this : *lanes_[static_cast<size_t>(lane) - 1];
      for (int part = lane; part < parts; part += threads) {
        workspace.run_shard(*this, step, part, parts);
      }
    });
    for (auto& lane : lanes_) lane->release_feeds();
  }
  if (parts == 1) return;
  if (step.runtime == nullptr) join_shards(threads);
  join_statistics();
}

std::vector<Tensor> Workspace::run(const Step& step) {
  const Place& place = plan_->key().place;
  if (!place.is_cpu()) {
    enter_place(place);
    fetch_persistables_in();
  }
  const int parts = plan_->sharded() ? step.shards.count() : 1;
  for (auto& tensors : fetched_) tensors.clear();
  const bool brackets = step.runtime != nullptr && plan_->communicates();
  if (brackets) step.runtime->begin_step(plan_->program(), step.number);
  if (plan_->head() > 0) {
    bind_feeds(step, 0, 1);
    run_ops(step, 0, plan_->head(), -1);
  }
  run_shards(step, parts);
  run_ops(step, plan_->tail(), static_cast<int>(plan_->ops().size()), -1);
  for (int k = 0; k < static_cast<int>(tokens_.size()); ++k) wait_for(k);
  if (brackets) {
    step.runtime->end_step(plan_->program(), step.number);
    leave_to(*step.runtime);
  }
  std::vector<Tensor> results = take_fetches(step);
  if (!place.is_cpu()) synchronize_stream(place, stream_.get());
  release_feeds();
  const bool told = std::atomic_ref(*nonfinite_word_).exchange(0) != 0;
  if (told && step.watch != nullptr) watch_updates(step, *plan_);
  return results;
}

std::vector<Tensor> Workspace::take_fetches(const Step& step) {
  std::vector<Tensor> results;
  for (size_t i = 0; i < fetched_.size(); ++i) {
    const PlanFetch& fetch = plan_->fetches()[i];
    const PlanVar& var = plan_->vars()[static_cast<size_t>(fetch.var)];
    if (fetch.kind == PlanFetch::Kind::kFeed) {
      results.push_back(step.feeds[static_cast<size_t>(var.feed)].copy_to(CPUPlace()));
    } else if (fetched_[i].empty()) {
      results.push_back(dense(value(fetch.var), var.name).copy_to(CPUPlace()));
    } else if (fetch.kind == PlanFetch::Kind::kMean) {
      tree_mean(fetched_[i], var.name, results.emplace_back());
    } else {
      results.push_back(join_rows(fetched_[i]));
    }
  }
  return results;
}

}  // namespace fleet::fluid
