#include "strategies/jobs/collective_job.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/names.h"
#include "strategies/jobs/collective_group.h"
#include "strategies/jobs/job_identity.h"

namespace fleet::strategies {
namespace {

using transport::Phase;

class CollectiveJobRuntime final : public StrategyRuntime {
 public:
  // Of the program of a step, and of the one whose persistable variables are saved.
  struct Programs {
    const fluid::Program& main;
    fluid::Program origin;
  };

  CollectiveJobRuntime(const GroupOptions& group, Programs programs,
                       CollectiveRuntimeOptions options)
      : origin_(std::move(programs.origin)),
        writes_(group.cluster.index == 0),
        group_(group),
        ops_(
            group.cluster, [this] { return group_.connect(); },
            with_devices(told_of_waits(std::move(options), longest_wait(group.config)))) {
    ops_.expect(programs.main);
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

  std::vector<double> all_reduce_training(std::span<const double> values) override {
    enter(Phase::kReducing);
    auto sum = ops_.all_reduce_between_steps(values);
    enter(Phase::kComputing);
    return sum;
  }

  fluid::StepShards shards() const override { return ops_.shards(); }
  bool sums_on(const fluid::Place& place) override { return ops_.sums_on(place); }
  void wait_for_leads() override { ops_.wait_for_leads(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    step_ = step;
    ops_.begin_step(program, step);
    enter(Phase::kComputing);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    ops_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    if (call.op.type == "gen_nccl_id") call.scope.set_keeper(fluid::kNcclId, weak_from_this());
    return ops_.run(call);
  }

  void sum_shards(const fluid::CommCall& call, std::span<const double* const> parts, double* out,
                  size_t count) override {
    ops_.sum_shards(call, parts, out, count);
  }

  const fluid::Program* checkpoint_program() const override { return &origin_; }
  // Values are the same at all ranks then.
  bool gather_persistables(fluid::Scope& scope) override {
    enter(Phase::kSaving);
    const Saved saved = saved_variables();
    ops_.align(saved.persistables, saved.parameters, scope);
    enter(Phase::kComputing);
    return writes_;
  }
  void meet_to_save() override { barrier_worker(); }
  void begin_saving(fluid::Scope& scope) override {
    enter(Phase::kSaving);
    const Saved saved = saved_variables();
    ops_.align_between_steps(saved.persistables, saved.parameters, scope);
    enter(Phase::kComputing);
  }
  void start_from(fluid::Scope&) override { barrier_worker(); }
  // LocalSGD averages parameters alone.
  std::vector<std::string> own_variables() override {
    std::vector<std::string> names;
    if (ops_.local_sgd() == nullptr) return names;
    for (const fluid::VarDesc* var : origin_.global_block().vars()) {
      if (var->persistable && !var->is_parameter) names.push_back(var->name);
    }
    return names;
  }
  std::vector<double> own_counts() override {
    return ops_.local_sgd() == nullptr ? std::vector<double>() : ops_.local_sgd()->counts();
  }
  void set_own_counts(std::span<const double> counts) override {
    if (ops_.local_sgd() != nullptr) ops_.local_sgd()->set_counts(counts);
  }

 private:
  struct Saved {
    std::vector<std::string> persistables;
    std::vector<std::string> parameters;
  };
  Saved saved_variables() const {
    Saved saved;
    for (const fluid::VarDesc* var : origin_.global_block().vars()) {
      if (var->persistable) saved.persistables.push_back(var->name);
    }
    for (const auto* parameter : origin_.global_block().parameters()) {
      saved.parameters.push_back(parameter->name);
    }
    return saved;
  }
  // A rank that waits for others is not to blame for standing still.
  CollectiveRuntimeOptions told_of_waits(CollectiveRuntimeOptions options, Duration longest) {
    options.reducer.timeout = longest;
    options.reducer.on_wait = [this](bool waits) {
      enter(waits ? Phase::kReducing : Phase::kComputing);
    };
    return options;
  }
  CollectiveRuntimeOptions with_devices(CollectiveRuntimeOptions options) {
    if (options.device_sums == DeviceSums::kHost) return options;
    const DeviceRanksOptions ranks{.nccl = {.ordered = options.device_sums == DeviceSums::kOrdered},
                                   .communicators = options.device_communicators,
                                   .hierarchical = options.hierarchical,
                                   .group_ranks = options.group_ranks,
                                   .logical_shards = options.logical_shards};
    options.connect_devices = [this, ranks](transport::CollectiveCommunicator& host,
                                            const fluid::Place& place) {
      return group_.connect_devices(host, place, ranks);
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
  return std::make_shared<CollectiveJobRuntime>(GroupOptions{.cluster = input.cluster,
                                                             .config = input.config,
                                                             .facts = job_facts(input, strategy),
                                                             .observer = input.observer,
                                                             .logger = input.logger},
                                                CollectiveJobRuntime::Programs{main, input.main},
                                                std::move(options));
}

std::shared_ptr<StrategyRuntime> make_transpiled_runtime(const TranspiledRanks& job,
                                                         CollectiveRuntimeOptions options) {
  auto facts = bits_facts();
  facts.emplace("endpoints", join(job.cluster.worker_endpoints, ","));
  facts.emplace("shards", str_cat(options.logical_shards));
  return std::make_shared<CollectiveJobRuntime>(
      GroupOptions{.cluster = job.cluster,
                   .config = job.config,
                   .facts = std::move(facts),
                   .observer = nullptr,
                   .logger = job.logger},
      CollectiveJobRuntime::Programs{job.program, job.program}, std::move(options));
}

}  // namespace fleet::strategies
