#include "strategies/jobs/collective_job.h"

#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/process/descriptors.h"
#include "base/strings.h"
#include "strategies/collective/collective_membership.h"
#include "strategies/collective/socket_ranks.h"
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

// MPI where the ranks have it: the other back end needs nothing but a place to meet.
bool uses_mpi(const RuntimeConfig& config, const role_maker::ClusterSpec& cluster) {
  if (config.collectives != "auto") return config.collectives == "mpi";
  return transport::MpiSession::has_launcher() || transport::MpiSession::is_open() ||
         (cluster.worker_endpoints.empty() && cluster.rendezvous.empty());
}

// The verdict may come before there is a communicator to end.
class CommunicatorOfVerdict {
 public:
  void set(transport::CollectiveCommunicator& communicator) {
    const std::lock_guard guard(mutex_);
    communicator_ = &communicator;
    if (!verdict_.ok()) communicator.abort(verdict_);
  }
  void call(const Status& verdict) {
    const std::lock_guard guard(mutex_);
    verdict_ = verdict;
    if (communicator_ != nullptr) communicator_->abort(verdict);
  }

 private:
  std::mutex mutex_;
  transport::CollectiveCommunicator* communicator_ = nullptr;
  Status verdict_;
};

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
      if (sockets_) sockets_->leave();
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
    if (cluster_.worker_num == 1) return transport::single_communicator();
    const bool over_mpi = uses_mpi(config_, cluster_);
    facts_.emplace("collectives", over_mpi ? "mpi" : "sockets");
    const auto lanes = static_cast<uint64_t>(cluster_.index == 0 ? cluster_.worker_num : 1) +
                       (over_mpi ? 0 : 2 * static_cast<uint64_t>(cluster_.worker_num));
    provide_descriptors(kOtherDescriptors + lanes, cluster_.process_name()).throw_if_error();
    return over_mpi ? connect_mpi() : connect_sockets();
  }

  std::unique_ptr<transport::CollectiveCommunicator> connect_mpi() {
    std::string identity;
    for (const auto& [name, value] : facts_) {
      const bool may_differ = name.starts_with(transport::kBitsFact) && !config_.require_same_bits;
      if (!may_differ) identity += str_cat(name, "=", value, " ");
    }
    const auto deadline = milliseconds(config_.rpc_deadline_ms);
    auto communicator = connect_over_mpi(cluster_, identity, deadline);
    logger_.info("collective",
                 "tensors travel over MPI, whose traffic is neither authenticated nor encrypted; "
                 "use a network that you trust");
    auto& session = transport::MpiSession::get();
    MembershipOptions options = membership_options(choose_job_secret(config_, cluster_));
    options.host = session.address();
    const auto broadcast = [&session, deadline](const std::string& from_rank_0) {
      return session.broadcast(from_rank_0, 0, deadline).value();
    };
    membership_.emplace(
        std::move(options), broadcast,
        [&to = *communicator](const Status& verdict) { to.abort(verdict); }, logger_);
    // From here on each of them learns when another one leaves.
    membership_->meet("join");
    return communicator;
  }

  std::unique_ptr<transport::CollectiveCommunicator> connect_sockets() {
    const Endpoint coordinator = coordinator_endpoint(cluster_);
    RuntimeConfig config = config_;
    const bool no_secret = config.job_secret.empty() && config.job_secret_file.empty() &&
                           cluster_.job_secret.empty() && !config.insecure;
    // The kernel vouches for ranks of one user on one machine.
    if (no_secret && on_one_machine(cluster_)) config.transport = "unix";
    MembershipOptions options = membership_options(choose_job_secret(config, cluster_));
    options.transport = transport::parse_transport_choice(config.transport).value();
    sockets_.emplace(options, milliseconds(config_.stall_deadline_ms), logger_);
    membership_.emplace(
        std::move(options), coordinator, [this](const Status& verdict) { abort_.call(verdict); },
        logger_);
    auto communicator = sockets_->connect(*membership_);
    abort_.set(*communicator);
    logger_.info("collective", "tensors travel over sockets",
                 {{"transport", config.transport}, {"coordinator", coordinator.to_string()}});
    return communicator;
  }

  MembershipOptions membership_options(transport::Secret secret) {
    MembershipOptions options{
        .cluster = cluster_,
        .secret = std::move(secret),
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
    return options;
  }

  role_maker::ClusterSpec cluster_;
  RuntimeConfig config_;
  std::map<std::string, std::string> facts_;
  Logger logger_;
  std::shared_ptr<JobObserver> observer_;
  fluid::Program origin_;
  uint64_t step_ = 0;
  std::optional<SocketRanks> sockets_;  // none over MPI
  CollectiveRuntime ops_;
  CommunicatorOfVerdict abort_;
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
