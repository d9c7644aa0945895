#include "strategies/jobs/collective_job.h"

#include <utility>

#include "base/error.h"
#include "strategies/jobs/collective_group.h"
#include "strategies/jobs/job_identity.h"

namespace fleet::strategies {
namespace {

using transport::Phase;

class CollectiveJobRuntime final : public StrategyRuntime {
 public:
  CollectiveJobRuntime(const StrategyInput& input, const Strategy& strategy,
                       const fluid::Program& main, CollectiveRuntimeOptions options)
      : origin_(input.main),
        writes_(input.cluster.index == 0),
        group_(input.cluster, input.config, job_facts(input, strategy), input.observer,
               input.logger),
        ops_(
            input.cluster, [this] { return group_.connect(); }, told_of_waits(std::move(options))) {
    ops_.expect(main);
  }

  ~CollectiveJobRuntime() override { group_.end(); }

  void init_worker() override { ops_.connect(); }

  void stop_worker() override {
    if (!ops_.connected()) return;
    enter(Phase::kFinishing);
    ops_.leave();
    enter(Phase::kFinishing);
    group_.leave();
    ops_.disconnect();
  }

  void abort_worker(const Status& why, uint64_t step) override { group_.abort(why, step); }

  void barrier_worker() override {
    enter(Phase::kBarrier);
    ops_.barrier_worker();
    enter(Phase::kComputing);
  }

  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    enter(Phase::kReducing);
    auto sum = ops_.all_reduce_worker(values);
    enter(Phase::kComputing);
    return sum;
  }

  fluid::StepShards shards() const override { return ops_.shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    step_ = step;
    ops_.begin_step(program, step);
    enter(Phase::kComputing);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    ops_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return ops_.run(call);
  }

  const fluid::Program* checkpoint_program() const override { return &origin_; }
  bool gather_persistables(fluid::Scope& scope) override {
    enter(Phase::kSaving);
    std::vector<std::string> persistables;
    std::vector<std::string> parameters;
    for (const fluid::VarDesc* var : origin_.global_block().vars()) {
      if (var->persistable) persistables.push_back(var->name);
    }
    for (const auto* parameter : origin_.global_block().parameters()) {
      parameters.push_back(parameter->name);
    }
    ops_.align(persistables, parameters, scope);
    enter(Phase::kComputing);
    return writes_;
  }

 private:
  // A rank that waits for others is not to blame for standing still.
  CollectiveRuntimeOptions told_of_waits(CollectiveRuntimeOptions options) {
    options.reducer.on_wait = [this](bool waits) {
      enter(waits ? Phase::kReducing : Phase::kComputing);
    };
    return options;
  }
  void enter(Phase phase) { group_.enter(phase, step_); }

  fluid::Program origin_;
  bool writes_;  // checkpoints
  uint64_t step_ = 0;
  CollectiveGroup group_;
  CollectiveRuntime ops_;
};

}  // namespace

void require_collective(const StrategyInput& input, const char* strategy) {
  if (input.cluster.mode == role_maker::Mode::kCollective) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "this strategy needs a collective job",
               .where = strategy,
               .expected = "mode collective",
               .got = "mode " + std::string(role_maker::to_string(input.cluster.mode)),
               .fix = "start the processes with launch or mpirun"});
}

std::shared_ptr<StrategyRuntime> make_collective_runtime(const StrategyInput& input,
                                                         const Strategy& strategy,
                                                         const fluid::Program& main,
                                                         CollectiveRuntimeOptions options) {
  options.reducer.timeout = longest_wait(input.config);
  return std::make_shared<CollectiveJobRuntime>(input, strategy, main, std::move(options));
}

}  // namespace fleet::strategies
