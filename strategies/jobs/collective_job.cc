#include "strategies/jobs/collective_job.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/process/descriptors.h"
#include "base/strings.h"
#include "strategies/collective/collective_membership.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/parameter_server/observer.h"
#include "transport/mpi_session/mpi_session.h"
#include "transport/session/same_bits.h"

namespace fleet::strategies {
namespace {

using std::chrono::milliseconds;
using transport::Phase;

// Files, MPI's own, the loop's.
constexpr uint64_t kOtherDescriptors = 128;

class CollectiveJobRuntime final : public StrategyRuntime {
 public:
  CollectiveJobRuntime(const StrategyInput& input, const Strategy& strategy,
                       const fluid::Program& main, CollectiveRuntimeOptions options)
      : cluster_(input.cluster),
        config_(input.config),
        facts_(job_facts(input, strategy)),
        logger_(input.logger),
        observer_(input.observer),
        origin_(input.main),
        ops_(
            cluster_, [this] { return connect(); }, told_of_waits(std::move(options))) {
    ops_.expect(main);
  }

  ~CollectiveJobRuntime() override { membership_.reset(); }

  void init_worker() override { ops_.connect(); }

  void stop_worker() override {
    if (!ops_.connected()) return;
    enter(Phase::kFinishing);
    ops_.leave();
    if (membership_) {
      membership_->set_phase(Phase::kFinishing, step_);
      membership_->leave();
      membership_.reset();
    }
    ops_.disconnect();
  }

  void abort_worker(const Status& why, uint64_t step) override {
    if (!membership_) return;
    membership_->abort(
        {.culprit = {transport::PeerRole::kWorker, static_cast<uint32_t>(cluster_.index)},
         .phase = Phase::kComputing,
         .step = step,
         .code = why.code(),
         .reason = why.text().what});
  }

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
    return cluster_.index == 0;
  }

 private:
  // A rank that waits for others is not to blame for standing still.
  CollectiveRuntimeOptions told_of_waits(CollectiveRuntimeOptions options) {
    options.reducer.on_wait = [this](bool waits) {
      enter(waits ? Phase::kReducing : Phase::kComputing);
    };
    return options;
  }
  void enter(Phase phase) {
    if (membership_) membership_->set_phase(phase, step_);
  }

  std::unique_ptr<transport::CollectiveCommunicator> connect() {
    const auto deadline = milliseconds(config_.rpc_deadline_ms);
    std::string identity;
    for (const auto& [name, value] : facts_) {
      const bool may_differ = name.starts_with(transport::kBitsFact) && !config_.require_same_bits;
      if (!may_differ) identity += str_cat(name, "=", value, " ");
    }
    auto communicator = connect_over_mpi(cluster_, identity, deadline);
    if (cluster_.worker_num > 1) {
      logger_.info("collective",
                   "tensors travel over MPI, whose traffic is neither authenticated nor encrypted; "
                   "use a network that you trust");
      watch(*communicator);
    }
    return communicator;
  }

  void watch(transport::CollectiveCommunicator& communicator) {
    const auto lanes = static_cast<uint64_t>(cluster_.index == 0 ? cluster_.worker_num : 1);
    provide_descriptors(kOtherDescriptors + lanes, cluster_.process_name()).throw_if_error();
    MembershipOptions options{
        .cluster = cluster_,
        .secret = choose_job_secret(config_, cluster_),
        .facts = facts_,
        .require_same_bits = config_.require_same_bits,
        .transport = transport::parse_transport_choice(config_.transport).value(),
        .rpc_deadline = milliseconds(config_.rpc_deadline_ms),
        .heartbeat_interval = milliseconds(config_.heartbeat_interval_ms),
        .heartbeat_timeout = milliseconds(config_.heartbeat_timeout_ms),
        .reconnect_grace = {.remote = milliseconds(config_.reconnect_grace_ms)},
        .stall_report = milliseconds(config_.stall_report_ms),
        .stall_deadline = milliseconds(config_.stall_deadline_ms)};
    options.cluster.job_id = choose_job_id(config_, cluster_);
    if (observer_) {
      options.waits = &observer_->waits;
      options.on_stall = [observer = observer_](const auto& stall) { observer->set_stall(stall); };
    }
    options.host = transport::MpiSession::get().address();
    const auto broadcast = [this](const std::string& from_rank_0) {
      return transport::MpiSession::get()
          .broadcast(from_rank_0, 0, milliseconds(config_.rpc_deadline_ms))
          .value();
    };
    membership_.emplace(
        std::move(options), broadcast,
        [&communicator](const Status& verdict) { communicator.abort(verdict); }, logger_);
    // From here on each of them learns when another one leaves.
    membership_->meet("join");
  }

  role_maker::ClusterSpec cluster_;
  RuntimeConfig config_;
  std::map<std::string, std::string> facts_;
  Logger logger_;
  std::shared_ptr<JobObserver> observer_;
  fluid::Program origin_;
  uint64_t step_ = 0;
  CollectiveRuntime ops_;
  // Ends before the communicator that its verdict aborts.
  std::optional<CollectiveMembership> membership_;
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
  // The coordinator's verdict, which names the culprit, comes first.
  options.reducer.timeout = milliseconds(input.config.stall_deadline_ms) +
                            2 * milliseconds(input.config.heartbeat_timeout_ms);
  return std::make_shared<CollectiveJobRuntime>(input, strategy, main, std::move(options));
}

}  // namespace fleet::strategies
