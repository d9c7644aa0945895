#include <algorithm>

#include "fluid/executor/finite_checks_impl.h"
#include "fluid/executor/step_runner_impl.h"
#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid {

StepRunner::StepRunner(std::shared_ptr<const Plan> plan, Scope& scope)
    : plan_(std::move(plan)), home_(plan_, scope), results_(home_) {}

// One shard of the step, in this workspace or a lane's.
void StepRunner::run_shard(Workspace& lane, const Workspace::Step& step, int part, int parts) {
  lane.bind_feeds(step, part, parts);
  if (parts > 1) results_.start(lane);
  lane.clear_arrays();
  const int shard = plan_->sharded() ? step.shards.begin + part : -1;
  lane.run_ops(step, plan_->head(), plan_->tail(), shard);
  if (parts == 1) return;
  const bool copies = lanes_.size() + 1 < static_cast<size_t>(parts);
  if (step.runtime == nullptr) results_.keep_gradients(lane, part, copies);
  results_.keep_statistics(lane, part);
  results_.keep_fetches(lane, part);
}

void StepRunner::run_on_threads(const Workspace::Step& step, int parts, int threads) {
  if (threads_ == nullptr) {  // an executor has as many shards and threads in every step
    for (int lane = 1; lane < threads; ++lane) {
      lanes_.push_back(
          std::make_unique<Workspace>(plan_, home_.scope(), nullptr, Workspace::Statistics::kOwn));
    }
    threads_ = std::make_unique<ShardThreads>(threads - 1);
  }
  threads_->run([&](int lane) {
    Workspace& workspace = lane == 0 ? home_ : *lanes_[static_cast<size_t>(lane) - 1];
    for (int part = lane; part < parts; part += threads) run_shard(workspace, step, part, parts);
  });
  for (auto& lane : lanes_) lane->release_feeds();
}

void StepRunner::run_shards(const Workspace::Step& step, int parts) {
  const bool apart =
      plan_->shards_are_apart() && step.runtime == nullptr && plan_->key().place.is_cpu();
  const int threads = apart ? std::min(step.threads, parts) : 1;
  if (threads == 1) {
    for (int part = 0; part < parts; ++part) run_shard(home_, step, part, parts);
  } else {
    run_on_threads(step, parts, threads);
  }
  if (parts == 1) return;
  if (step.runtime == nullptr) {
    results_.join_gradients(threads == 1 ? nullptr : threads_.get(), threads);
  }
  results_.join_statistics();
}

std::vector<Tensor> StepRunner::run(const Workspace::Step& step) {
  const Place& place = plan_->key().place;
  if (!place.is_cpu()) {
    enter_place(place);
    home_.fetch_persistables_in();
  }
  const int parts = plan_->sharded() ? step.shards.count() : 1;
  const bool brackets = step.runtime != nullptr && plan_->communicates();
  if (brackets) step.runtime->begin_step(plan_->program(), step.number);
  if (plan_->head() > 0) {
    home_.bind_feeds(step, 0, 1);
    home_.run_ops(step, 0, plan_->head(), -1);
  }
  results_.begin(parts);
  run_shards(step, parts);
  home_.run_ops(step, plan_->tail(), static_cast<int>(plan_->ops().size()), -1);
  home_.communication().wait_for_all();
  if (brackets) {
    step.runtime->end_step(plan_->program(), step.number);
    home_.communication().leave_tables_to(*step.runtime);
  }
  std::vector<Tensor> results = results_.fetches(step.feeds);
  if (!place.is_cpu()) synchronize_stream(place, home_.stream());
  home_.release_feeds();
  const bool told = home_.take_nonfinite_word();
  if (told && step.watch != nullptr) home_.finite_checks().watch_parameters(step);
  return results;
}

}  // namespace fleet::fluid
