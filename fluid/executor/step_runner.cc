#include <algorithm>
#include <atomic>
#include <variant>

#include "base/shard_tree.h"
#include "fluid/executor/finite_checks_impl.h"
#include "fluid/executor/step_runner_impl.h"
#include "fluid/executor/unseen_steps_impl.h"
#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid {
namespace {

bool is_head_fed(const Plan& plan) {
  const auto fed = [&plan](int i) {
    return i >= 0 && plan.vars()[static_cast<size_t>(i)].feed >= 0;
  };
  const auto& ops = plan.ops();
  return std::any_of(ops.begin(), ops.begin() + plan.head(), [&fed](const PlanOp& op) {
    return std::any_of(op.inputs.begin(), op.inputs.end(), fed) ||
           std::any_of(op.outputs.begin(), op.outputs.end(), fed) ||
           std::any_of(op.block_vars.begin(), op.block_vars.end(), fed);
  });
}

}  // namespace

StepRunner::StepRunner(std::shared_ptr<const Plan> plan, Scope& scope, UnseenSteps& unseen)
    : plan_(std::move(plan)),
      home_(plan_, scope),
      results_(home_),
      head_is_fed_(is_head_fed(*plan_)),
      unseen_(unseen),
      words_(make_shared_words(plan_->key().place, 2 * home_.finite_checks().words())) {}

StepRunner::~StepRunner() {
  unseen_.forget(home_.finite_checks());
}

// One shard of the step, in this workspace or a lane's.
void StepRunner::run_shard(Workspace& lane, const Workspace::Step& step, int part, int parts) {
  lane.bind_feeds(step, part, parts);
  if (parts > 1) results_.start(lane);
  lane.clear_arrays();
  const int shard = plan_->sharded() ? step.shards.begin + part : -1;
  lane.run_ops(step, plan_->head(), plan_->tail(), shard);
  if (parts == 1) return;
  keep_results(lane, step, part, lanes_.size() + 1 < static_cast<size_t>(parts));
}

void StepRunner::keep_results(Workspace& lane, const Workspace::Step& step, int part, bool copies) {
  if (step.runtime == nullptr) results_.keep_gradients(lane, part, copies);
  results_.keep_statistics(lane, part);
  results_.keep_fetches(lane, part);
}

// An executor has as many shards and threads in every step.
void StepRunner::make_lanes(int lanes, int threads) {
  while (static_cast<int>(lanes_.size()) + 1 < lanes) {
    lanes_.push_back(
        std::make_unique<Workspace>(plan_, home_.scope(), nullptr, Workspace::Statistics::kOwn));
  }
  if (threads > 1 && threads_ == nullptr) threads_ = std::make_unique<ShardThreads>(threads - 1);
}

void StepRunner::run_on_threads(const Workspace::Step& step, int parts, int threads) {
  make_lanes(threads, threads);
  threads_->run([&](int lane) {
    Workspace& workspace = lane == 0 ? home_ : *lanes_[static_cast<size_t>(lane) - 1];
    for (int part = lane; part < parts; part += threads) run_shard(workspace, step, part, parts);
  });
  for (auto& lane : lanes_) lane->release_feeds();
}

// Every shard has values of its own, and all of them come to an op before it joins them.
void StepRunner::run_joined(const Workspace::Step& step, int parts, int threads) {
  make_lanes(parts, threads);
  const auto run_all = [&](int begin, int end, bool first, bool last) {
    const auto run = [&](int part) {
      Workspace& lane = lane_of(part, parts);
      if (first) lane.bind_feeds(step, part, parts);
      if (first && parts > 1) results_.start(lane);
      if (first) lane.clear_arrays();
      lane.run_ops(step, begin, end, plan_->sharded() ? step.shards.begin + part : -1);
      if (last && parts > 1) keep_results(lane, step, part, false);
    };
    if (threads == 1) {
      for (int part = 0; part < parts; ++part) run(part);
    } else {
      threads_->run([&](int thread) {
        for (int part = thread; part < parts; part += threads) run(part);
      });
    }
  };
  int begin = plan_->head();
  for (const int op : plan_->joins()) {
    run_all(begin, op, begin == plan_->head(), false);
    join(step, op, parts);
    begin = op + 1;
  }
  run_all(begin, plan_->tail(), false, true);
  for (auto& lane : lanes_) lane->release_feeds();
}

// The sum of what the shards have in the op's input goes to all of them.
void StepRunner::join(const Workspace::Step& step, int op, int parts) {
  const PlanOp& planned = plan_->ops()[static_cast<size_t>(op)];
  std::vector<const double*> given;
  std::vector<Tensor*> results;
  for (int part = 0; part < parts; ++part) {
    Workspace& lane = lane_of(part, parts);
    const auto& in = std::get<Tensor>(lane.value(planned.inputs.front()));
    Value& out = lane.value(planned.outputs.front());
    if (!std::holds_alternative<Tensor>(out)) out = Tensor();
    results.push_back(&std::get<Tensor>(out));
    results.back()->reset(in.dtype(), in.shape());
    given.push_back(in.data<double>());
  }
  const auto count = static_cast<size_t>(results.back()->numel());
  double* const sum = results.back()->data<double>();
  // A step that is not cut into shards is this process's alone.
  if (step.runtime == nullptr || !plan_->sharded()) {
    tree_sum<double>(given, sum, count);
  } else {
    const CommCall call{.program = plan_->program(),
                        .block = plan_->block(),
                        .op = *planned.op,
                        .scope = home_.scope(),
                        .inputs = {},
                        .outputs = {},
                        .step = step.number};
    step.runtime->sum_shards(call, given, sum, count);
  }
  for (Tensor* result : results) {
    if (result != results.back()) result->copy_from(*results.back());
  }
}

void StepRunner::run_shards(Workspace::Step step, int parts) {
  const bool apart =
      plan_->shards_are_apart() && step.runtime == nullptr && plan_->key().place.is_cpu();
  const int threads = apart ? std::min(step.threads, parts) : 1;
  if (threads > 1) step.tiles = {};
  if (!plan_->joins().empty()) {
    run_joined(step, parts, threads);
  } else if (threads == 1) {
    for (int part = 0; part < parts; ++part) run_shard(home_, step, part, parts);
  } else {
    run_on_threads(step, parts, threads);
  }
  if (parts == 1) return;
  if (step.runtime == nullptr) {
    results_.join_gradients(
        {.threads = threads == 1 ? nullptr : threads_.get(), .lanes = threads, .sums = step.sums});
  }
  results_.join_statistics();
}

void StepRunner::run_op_by_op(const Workspace::Step& step, int parts) {
  // Shards are given their own parts.
  if (head_is_fed_) home_.bind_feeds(step, 0, 1);
  home_.run_ops(step, 0, plan_->head(), -1);
  run_shards(step, parts);
  home_.run_ops(step, plan_->tail(), static_cast<int>(plan_->ops().size()), -1);
}

bool StepRunner::run_graph(const Workspace::Step& step, int parts) {
  if (!step.graph || parts != 1 || !plan_->joins().empty()) return false;
  if (graph_ == nullptr) graph_ = std::make_unique<StepGraph>(home_);
  home_.bind_feeds(step, 0, 1);
  return graph_->run(step, [&] {
    home_.run_ops(step, 0, plan_->tail(), plan_->sharded() ? step.shards.begin : -1);
    home_.run_ops(step, plan_->tail(), static_cast<int>(plan_->ops().size()), -1);
  });
}

bool StepRunner::is_waited_for(const Workspace::Step& step, bool later) const {
  const bool looked_at = step.check_nan_inf || step.profile != nullptr;
  return plan_->key().place.is_cpu() || looked_at || (!later && !plan_->fetches().empty());
}

// Of a step that nobody watches, what the device says is not told of a later one either.
uint32_t* StepRunner::words_for(const Workspace::Step& step) {
  const size_t count = home_.finite_checks().words();
  if (step.watch != nullptr) second_words_ = !second_words_;
  uint32_t* const words = words_.get() + (second_words_ ? count : 0);
  for (size_t i = 0; step.watch != nullptr && i < count; ++i) std::atomic_ref(words[i]).store(0);
  return words;
}

std::vector<Tensor> StepRunner::run(Workspace::Step step, bool later) {
  const Place& place = plan_->key().place;
  step.nonfinite_words = words_for(step);
  if (!place.is_cpu()) {
    enter_place(place);
    home_.fetch_persistables_in();
  }
  const int parts = plan_->sharded() ? step.shards.count() : 1;
  const bool brackets = step.runtime != nullptr && plan_->communicates();
  if (brackets) step.runtime->begin_step(plan_->program(), step.number);
  results_.begin(parts);
  if (!run_graph(step, parts)) run_op_by_op(step, parts);
  home_.communication().wait_for_all();
  if (brackets) {
    step.runtime->end_step(plan_->program(), step.number);
    home_.communication().leave_tables_to(*step.runtime);
  }
  std::vector<Tensor> results = results_.fetches(step.feeds, later);
  const bool waits = is_waited_for(step, later);
  if (waits && !place.is_cpu()) synchronize_stream(place, home_.stream());
  home_.release_feeds();
  unseen_.look();
  if (step.watch == nullptr) return results;
  unseen_.leave(home_.finite_checks(), step, waits ? nullptr : mark_device(place));
  if (waits) unseen_.look();
  return results;
}

}  // namespace fleet::fluid
