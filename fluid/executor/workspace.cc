#include <algorithm>
#include <atomic>
#include <new>

#include "base/clock.h"
#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/block/block_runner_impl.h"
#include "fluid/executor/finite_checks_impl.h"
#include "fluid/executor/profile_impl.h"
#include "fluid/executor/shards/shard_feeds_impl.h"
#include "fluid/executor/workspace_impl.h"
#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid {
namespace {

// In profiles.
std::string place_of_copy(const PlanVar& to) {
  return "to " + to.place.to_string();
}

}  // namespace

Workspace::Workspace(std::shared_ptr<const Plan> plan, Scope& scope, Workspace* outer,
                     Statistics statistics)
    : plan_(std::move(plan)), scope_(scope), outer_(outer), communication_(*plan_, scope) {
  bind_values(statistics);
  scope_revision_ = scope_.revision();
  buffers_.resize(static_cast<size_t>(plan_->buffer_count()));
  const Place place = plan_->key().place;
  if (outer_ != nullptr) {
    stream_ = outer_->stream_;
  } else if (!place.is_cpu()) {
    stream_ = {create_stream(place), [place](void* stream) { destroy_stream(place, stream); }};
  }
  for (size_t k = 0; k < plan_->ops().size(); ++k) add_runner(k);
  finite_checks_ = std::make_unique<const FiniteChecks>(*this);
}

Workspace::~Workspace() = default;

// Each variable's value: the enclosing workspace's, the scope's, or one of our own.
void Workspace::bind_values(Statistics statistics) {
  const auto& vars = plan_->vars();
  own_.resize(vars.size());
  for (size_t i = 0; i < vars.size(); ++i) {
    Value* found = nullptr;
    if (vars[i].outer && outer_ != nullptr) found = outer_->find(vars[i].name);
    const bool whole = plan_->whole_step() || (plan_->inner() && !vars[i].outer);
    const bool looks = found == nullptr && vars[i].copy_of < 0 && (vars[i].in_scope || !whole);
    if (looks) found = scope_.find(vars[i].name);
    if (vars[i].in_scope && found == nullptr) found = &scope_.var(vars[i].name);
    values_.push_back(found != nullptr ? found : &own_[i]);
  }
  for (const auto& [name, home] : plan_->persistables()) {
    if (plan_->key().place.is_cpu()) break;
    if (Value* value = scope_.find(name)) persistables_.emplace_back(value, home);
  }
  if (statistics == Statistics::kOwn) {
    for (const int i : plan_->statistics())
      values_[static_cast<size_t>(i)] = &own_[static_cast<size_t>(i)];
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
  const bool remote = communication_.add(k, inputs, outputs);
  runners_.emplace_back();
  block_runners_.emplace_back();
  if (op.block != nullptr) {
    block_runners_.back() = BlockRunner::make(*this, static_cast<int>(k));
  } else if (!remote && !op.copies && op.schema->run_by != RunBy::kShards) {
    void* const stream = op.place.is_cpu() ? nullptr : stream_.get();
    runners_.back() = std::make_unique<OpRunner>(*plan_, op, std::move(inputs), std::move(outputs),
                                                 buffers_, scratch_of(op), stream);
  }
}

// Ops that run at once have memory of their own.
Scratch& Workspace::scratch_of(const PlanOp& op) {
  if (op.before == 0) return scratch_;
  const auto before = static_cast<size_t>(op.before);
  while (beside_scratch_.size() < before) beside_scratch_.push_back(std::make_unique<Scratch>());
  return *beside_scratch_[before - 1];
}

Value* Workspace::find(std::string_view name) const {
  if (const int i = plan_->find_var(name); i >= 0) return values_[static_cast<size_t>(i)];
  return outer_ == nullptr ? nullptr : outer_->find(name);
}

void Workspace::clear_arrays() {
  for (size_t i = 0; i < own_.size(); ++i) {
    auto* array = std::get_if<TensorArray>(&own_[i]);
    if (array != nullptr && plan_->vars()[i].written) array->clear();
  }
}

// What the op of the block put into its variables may come from another place.
void Workspace::bring_home() {
  if (plan_->key().place.is_cpu()) return;
  for (size_t i = 0; i < own_.size(); ++i) {
    if (plan_->vars()[i].copy_of < 0) move_value(own_[i], plan_->vars()[i].place);
  }
}

void Workspace::run_inner(const Step& step, int shard) {
  clear_arrays();
  bring_home();
  run_ops(step, 0, static_cast<int>(plan_->ops().size()), shard);
}

void Workspace::fetch_persistables_in() {
  for (const auto& [value, home] : persistables_) move_value(*value, home);
}

// `stays`: in every step at the same place in memory, unless it is read where it was fed.
Tensor Workspace::fed_to_device(size_t var, const Tensor& fed, bool stays) {
  fed_.resize(plan_->vars().size());
  Fed& own = fed_[var];
  const Place& place = plan_->vars()[var].place;
  if (fed.place() == place && !plan_->vars()[var].fed_and_written) {
    const bool known = own.direct == nullptr || own.direct == fed.raw();
    own.moves = own.moves || !known;
    own.direct = fed.raw();
    if (!stays || !own.moves) return fed;
  }
  Tensor& memory = own.memory;
  if (!memory.initialized() || memory.dtype() != fed.dtype() || memory.shape() != fed.shape()) {
    memory.reset(fed.dtype(), fed.shape(), place);
  }
  if (fed.place().is_cpu()) {
    if (own.copier == nullptr) own.copier = make_feed_copier(place);
    own.copier->copy(memory.raw(), fed.raw(), fed.bytes());
  } else {
    memory.copy_from(fed);
  }
  memory.share_lod(fed);
  return memory;
}

void Workspace::bind_feeds(const Step& step, int part, int parts) {
  for (size_t i = 0; i < plan_->vars().size(); ++i) {
    const PlanVar& var = plan_->vars()[i];
    if (var.feed < 0) continue;
    const Tensor& fed = step.feeds[static_cast<size_t>(var.feed)];
    const bool cut = parts > 1 && var.desc->shape.rank() > 0 && var.desc->shape[0] < 0;
    Tensor bound = cut ? part_of_feed(fed, part, parts) : fed;
    if (!var.place.is_cpu()) {
      const TimePoint begin = steady_clock().now();
      own_[i] = fed_to_device(i, bound, step.graph);
      const bool copied = std::get<Tensor>(own_[i]).raw() != bound.raw();
      if (step.profile == nullptr || !copied) continue;
      step.profile->add({.type = "feed",
                         .makes = var.name,
                         .place = place_of_copy(var),
                         .begin = begin,
                         .end = steady_clock().now(),
                         .step = step.number,
                         .bytes = static_cast<double>(bound.bytes())});
    } else {
      const bool copies = !bound.place().is_cpu() || var.fed_and_written;
      own_[i] = copies ? bound.copy_to(var.place) : std::move(bound);
    }
  }
}

void Workspace::release_feeds() {
  for (size_t i = 0; i < plan_->vars().size(); ++i) {
    if (plan_->vars()[i].feed >= 0) own_[i] = std::monostate();
  }
}

void Workspace::run_ops(const Step& step, int begin, int end, int shard) {
  communication_.forget_unstarted();
  if (step.profile == nullptr) {
    const bool together = !step.check_nan_inf;
    for (int k = begin; k < end;) {
      const int count = beside(step, k, end);
      if (count > 1) {
        run_beside(step, k, count, shard);
      } else {
        run_op(step, k, shard, together && k + 1 < end);
      }
      k += count;
    }
  } else {
    for (int k = begin; k < end; ++k) measure_op(step, k, shard);
  }
  communication_.start_all();
}

// How many ops from k on run at once. Each is one thread's: where they are few, sharing the tiles
// of each keeps more threads at work.
int Workspace::beside(const Step& step, int k, int end) const {
  constexpr int kOfAThread = 4;
  const int count = plan_->ops()[static_cast<size_t>(k)].beside;
  const bool many = count >= kOfAThread * step.tile_threads && k + count <= end;
  return step.tiles.parallel() && many && !step.check_nan_inf ? count : 1;
}

void Workspace::run_beside(const Step& step, int k, int count, int shard) {
  Step alone = step;
  alone.tiles = {};
  alone.watch = nullptr;
  step.tiles.run(count, [&](int64_t i) { run_op(alone, k + static_cast<int>(i), shard, false); });
  if (step.watch == nullptr) return;
  for (int i = k; i < k + count; ++i) {
    finite_checks_->watch(step, i, runners_[static_cast<size_t>(i)]->written());
  }
}

void Workspace::run_op(const Step& step, int k, int shard, bool together) {
  OpRunner* runner = runners_[static_cast<size_t>(k)].get();
  communication_.go_on();
  if (BlockRunner* block = block_runners_[static_cast<size_t>(k)].get()) {
    communication_.start_all();
    before_host_waits(step);
    block->run(step, shard);
    if (step.watch != nullptr) finite_checks_->watch(step, k, 0);
    return;
  }
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  if (op.copies) return copy(step, k);
  if (runner != nullptr && plan_->communicates()) communication_.wait_before(k);
  if (communication_.calls(k)) {
    communication_.run(step.runtime, k, step.number, shard);
    // Nobody waits for rows that are looked up.
    if (!op.communication) communication_.start_all();
  }
  if (runner == nullptr) return;
  try {
    runner->run(step.number, shard, together, step.tiles, step.nonfinite_words);
  } catch (const std::bad_alloc&) {
    if (op.place.is_cpu()) throw;
    throw_no_memory(k);
  }
  if (step.check_nan_inf) {
    before_host_waits(step);
    finite_checks_->check_outputs(k, step.number, runner->written());
  }
  if (step.watch != nullptr) finite_checks_->watch(step, k, runner->written());
}

// The device may wait for sums of other processes: the host waits for those first, with the job's
// deadlines.
void Workspace::before_host_waits(const Step& step) const {
  if (step.runtime != nullptr && plan_->key().device_sums) step.runtime->wait_for_leads();
}

// Says whose memory it is: the largest variables, and what steps take beside them.
void Workspace::throw_no_memory(int k) const {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  std::vector<std::pair<size_t, std::string>> held;
  size_t variables = 0;
  for (int i = 0; i < static_cast<int>(plan_->vars().size()); ++i) {
    const auto* tensor = std::get_if<Tensor>(&value(i));
    const PlanVar& var = plan_->vars()[static_cast<size_t>(i)];
    const bool counts = tensor != nullptr && tensor->initialized() && var.buffer < 0;
    if (!counts || !(tensor->place() == op.place)) continue;
    held.emplace_back(tensor->bytes(), var.name);
    variables += tensor->bytes();
  }
  std::sort(held.rbegin(), held.rend());
  std::vector<std::string> largest;
  for (size_t i = 0; i < std::min<size_t>(held.size(), 3); ++i) {
    largest.push_back(str_cat("'", held[i].second, "' ", held[i].first, " bytes"));
  }
  size_t buffers = 0;
  for (const Buffer& buffer : buffers_) buffers += buffer.size();
  std::vector<std::string> inputs;
  for (const int i : op.inputs) {
    const auto* tensor = std::get_if<Tensor>(&value(i));
    if (tensor == nullptr || !tensor->initialized()) continue;
    inputs.push_back(str_cat(dtype_name(tensor->dtype()), tensor->shape()));
  }
  throw_error(ErrorCode::kNoMemory,
              {.what = str_cat("the memory of ", op.place.to_string(), " is used up"),
               .where = str_cat(op.op->to_string(), ", with inputs ", join(inputs, ", ")),
               .expected = "memory for what the op makes",
               .got = str_cat("this program's variables take ", variables, " bytes (the largest: ",
                              join(largest, ", "), "), its steps ", buffers, " bytes beside them"),
               .fix = "give smaller batches, recompute parts of the net "
                      "(MinimizeOptions::checkpoints), or use a device with more memory"});
}

void Workspace::copy(const Step& step, int k) {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  if (plan_->communicates()) communication_.wait_before(k);
  const int to = op.outputs.front();
  const Place& place = plan_->vars()[static_cast<size_t>(to)].place;
  if (op.staged && (place.is_cpu() ? copy_later(k) : copy_to_device(k))) return;
  if (place.is_cpu()) before_host_waits(step);
  copy_value(value(op.inputs.front()), value(to), place);
}

// Begins to copy a tensor to where the runtime reads it. False for other values.
bool Workspace::copy_later(int k) {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  const auto* from = std::get_if<Tensor>(&value(op.inputs.front()));
  if (from == nullptr || from->place().is_cpu() || from->bytes() == 0) return false;
  auto& copier = to_host_[k];
  if (copier == nullptr) copier = make_host_copier(from->place());
  copier->start(from->raw(), from->bytes());
  Tensor host(from->dtype(), from->shape(), copier->bytes(), 0);
  host.share_lod(*from);
  value(op.outputs.front()) = std::move(host);
  communication_.expect(op.outputs.front(), *copier);
  return true;
}

// A tensor that the runtime wrote. False for other values.
bool Workspace::copy_to_device(int k) {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  const auto* from = std::get_if<Tensor>(&value(op.inputs.front()));
  if (from == nullptr || !from->initialized() || !from->place().is_cpu()) return false;
  const int to = op.outputs.front();
  const Place& place = plan_->vars()[static_cast<size_t>(to)].place;
  auto& copier = to_device_[k];
  if (copier == nullptr) copier = make_value_copier(place);
  if (!std::holds_alternative<Tensor>(value(to))) value(to) = Tensor();
  auto& made = std::get<Tensor>(value(to));
  made.reset(from->dtype(), from->shape(), place);
  copier->copy(made.raw(), from->raw(), from->bytes());
  made.share_lod(*from);
  return true;
}

void Workspace::measure_op(const Step& step, int k, int shard) {
  const PlanOp& op = plan_->ops()[static_cast<size_t>(k)];
  Profile::Call call{.step = step.number};
  if (plan_->communicates() && !op.waits.empty()) {
    call.type = "wait";
    call.begin = steady_clock().now();
    communication_.wait_before(k);
    call.end = steady_clock().now();
    step.profile->add(call);
  }
  call.begin = steady_clock().now();
  run_op(step, k, shard, false);
  // The time of the work itself, and not of putting it on the stream.
  if (!op.place.is_cpu()) {
    before_host_waits(step);
    synchronize_stream(op.place, stream_.get());
  }
  call.end = steady_clock().now();
  call.type = op.op->type;
  call.place =
      op.copies ? "to " + plan_->vars()[static_cast<size_t>(op.outputs.front())].place.to_string()
                : op.place.to_string();
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
  if (op.schema->flops) call.flops = op.schema->flops({*op.op, inputs, outputs});
  if (const auto names = op.op->output_names(); !names.empty()) call.makes = names.front();
  step.profile->add(std::move(call));
}

}  // namespace fleet::fluid
