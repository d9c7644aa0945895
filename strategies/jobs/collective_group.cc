#include "strategies/jobs/collective_group.h"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/process/descriptors.h"
#include "base/strings.h"
#include "strategies/collective/collective_membership.h"
#include "strategies/collective/collective_runtime.h"
#include "strategies/collective/shared_ranks.h"
#include "strategies/collective/socket_ranks.h"
#include "strategies/jobs/job_identity.h"
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

// The job's communicators as the control thread uses them: a verdict may come before there are any
// to end.
class CommunicatorsForControl {
 public:
  void add(transport::CollectiveCommunicator& communicator) {
    const std::lock_guard guard(mutex_);
    communicators_.push_back(&communicator);
    if (!verdict_.ok()) communicator.abort(verdict_);
  }
  void forget() {
    const std::lock_guard guard(mutex_);
    communicators_.clear();
  }
  void call(const Status& verdict) {
    const std::lock_guard guard(mutex_);
    verdict_ = verdict;
    for (auto* communicator : communicators_) communicator->abort(verdict);
  }
  std::string awaited() const {
    const std::lock_guard guard(mutex_);
    for (const auto* communicator : communicators_) {
      if (auto operation = communicator->awaited(); !operation.empty()) return operation;
    }
    return {};
  }

 private:
  mutable std::mutex mutex_;
  std::vector<transport::CollectiveCommunicator*> communicators_;
  Status verdict_;
};

}  // namespace

std::string nccl_key(const transport::Secret& secret) {
  std::string key = transport::shared_key(secret, "fleet-2-nccl");
  if (!key.empty()) return key;
  throw_error(ErrorCode::kEnvironment,
              {.what = "NCCL's key is made of the job's secret",
               .where = "FLEET_NCCL_ENCRYPTION",
               .expected = "a job with a secret",
               .got = "none",
               .fix = "set FLEET_JOB_SECRET_FILE in every rank, start them "
                      "with launch, or unset FLEET_NCCL_ENCRYPTION"});
}

Duration longest_wait(const RuntimeConfig& config) {
  return milliseconds(config.stall_deadline_ms) + 2 * milliseconds(config.heartbeat_timeout_ms);
}

struct CollectiveGroup::State : GroupOptions {
  std::unique_ptr<transport::CollectiveCommunicator> connect() {
    if (cluster.worker_num == 1) return transport::single_communicator();
    const bool over_mpi = uses_mpi(config, cluster);
    facts.emplace("collectives", over_mpi ? "mpi" : "sockets");
    const auto lanes = static_cast<uint64_t>(cluster.index == 0 ? cluster.worker_num : 1) +
                       (over_mpi ? 0 : 2 * static_cast<uint64_t>(cluster.worker_num));
    provide_descriptors(kOtherDescriptors + lanes, cluster.process_name()).throw_if_error();
    return over_mpi ? connect_mpi() : connect_sockets();
  }

  std::unique_ptr<transport::CollectiveCommunicator> connect_mpi() {
    std::string identity;
    for (const auto& [name, value] : facts) {
      const bool may_differ = name.starts_with(transport::kBitsFact) && !config.require_same_bits;
      if (!may_differ) identity += str_cat(name, "=", value, " ");
    }
    const auto deadline = milliseconds(config.rpc_deadline_ms);
    auto communicator = connect_over_mpi(cluster, identity, deadline);
    logger.info("collective",
                "tensors travel over MPI, whose traffic is neither authenticated nor encrypted; "
                "use a network that you trust");
    auto& session = transport::MpiSession::get();
    MembershipOptions options = membership_options(choose_job_secret(config, cluster));
    options.host = session.address(config.socket_ifname);
    const auto broadcast = [&session, deadline](const std::string& from_rank_0) {
      return session.broadcast(from_rank_0, 0, deadline).value();
    };
    control.add(*communicator);
    membership.emplace(
        std::move(options), broadcast, [this](const Status& verdict) { control.call(verdict); },
        logger);
    // From here on each of them learns when another one leaves.
    try {
      membership->meet("join");
    } catch (...) {
      control.forget();
      throw;
    }
    return communicator;
  }

  std::unique_ptr<transport::CollectiveCommunicator> connect_sockets() {
    const Endpoint coordinator = coordinator_endpoint(cluster);
    RuntimeConfig own = config;
    const bool no_secret = own.job_secret.empty() && own.job_secret_file.empty() &&
                           cluster.job_secret.empty() && !own.insecure;
    // The kernel vouches for ranks of one user on one machine.
    if (no_secret && on_one_machine(cluster)) own.transport = "unix";
    MembershipOptions options = membership_options(choose_job_secret(own, cluster));
    options.transport = transport::parse_transport_choice(own.transport).value();
    sockets.emplace(options, config.socket_ifname, longest_wait(config), logger);
    membership.emplace(
        std::move(options), coordinator, [this](const Status& verdict) { control.call(verdict); },
        logger);
    if (auto communicator = share_memory()) {
      control.add(*communicator);
      logger.info("collective", "tensors travel through shared memory",
                  {{"coordinator", coordinator.to_string()}});
      return communicator;
    }
    auto communicator = sockets->connect(*membership);
    control.add(*communicator);
    logger.info("collective", "tensors travel over sockets",
                {{"transport", own.transport},
                 {"coordinator", coordinator.to_string()},
                 {"listens", sockets->endpoint().to_string()}});
    return communicator;
  }

  std::unique_ptr<transport::CollectiveCommunicator> connect_devices(
      transport::CollectiveCommunicator& host, const fluid::Place& place,
      DeviceRanksOptions options) {
    options.timeout = options.nccl.late_limit = longest_wait(config);
    options.encryption_key = device_key;
    auto communicator = strategies::connect_devices(host, place, options, logger);
    if (communicator != nullptr) control.add(*communicator);
    return communicator;
  }

  // Null where the ranks cannot, or are not to; the same at all of them.
  std::unique_ptr<transport::CollectiveCommunicator> share_memory() {
    const bool wanted = config.transport != "tcp";
    auto shared = connect_shared(*membership, cluster, wanted);
    if (shared.ok()) {
      sockets.reset();
      return std::move(shared.value());
    }
    if (wanted) {
      const ErrorText& why = shared.status().text();
      logger.info("collective", "ranks do not share memory, and use sockets",
                  {{"where", why.where}, {"got", why.got}});
    }
    return nullptr;
  }

  MembershipOptions membership_options(transport::Secret secret) {
    if (config.nccl_encryption) device_key = nccl_key(secret);
    MembershipOptions options{
        .cluster = cluster,
        .secret = std::move(secret),
        .facts = facts,
        .require_same_bits = config.require_same_bits,
        .transport = transport::parse_transport_choice(config.transport).value(),
        .rpc_deadline = milliseconds(config.rpc_deadline_ms),
        .heartbeat_interval = milliseconds(config.heartbeat_interval_ms),
        .heartbeat_timeout = milliseconds(config.heartbeat_timeout_ms),
        .reconnect_grace = {.remote = milliseconds(config.reconnect_grace_ms)},
        .stall_report = milliseconds(config.stall_report_ms),
        .stall_deadline = milliseconds(config.stall_deadline_ms)};
    options.cluster.job_id = choose_job_id(config, cluster);
    options.awaits = [this] { return control.awaited(); };
    if (observer) {
      options.waits = &observer->waits;
      options.on_stall = [observer = observer](const auto& stall) { observer->set_stall(stall); };
    }
    return options;
  }

  std::string device_key = {};                        // empty: NCCL's sockets are not encrypted
  std::optional<SocketRanks> sockets = std::nullopt;  // not over MPI, nor in shared memory
  CommunicatorsForControl control = {};
  std::optional<CollectiveMembership> membership = std::nullopt;
};

CollectiveGroup::CollectiveGroup(GroupOptions options) : state_(new State{std::move(options)}) {}

CollectiveGroup::~CollectiveGroup() = default;

std::unique_ptr<transport::CollectiveCommunicator> CollectiveGroup::connect() {
  return state_->connect();
}

std::unique_ptr<transport::CollectiveCommunicator> CollectiveGroup::connect_devices(
    transport::CollectiveCommunicator& host, const fluid::Place& place,
    DeviceRanksOptions options) {
  return state_->connect_devices(host, place, std::move(options));
}

void CollectiveGroup::enter(Phase phase, uint64_t step) {
  if (state_->membership) state_->membership->set_phase(phase, step);
}

void CollectiveGroup::abort(const Status& why, uint64_t step) {
  if (!state_->membership) return;
  state_->membership->abort(
      {.culprit = {transport::PeerRole::kWorker, static_cast<uint32_t>(state_->cluster.index)},
       .phase = Phase::kComputing,
       .step = step,
       .code = why.code(),
       .reason = why.text().what});
}

void CollectiveGroup::leave() {
  if (!state_->membership) return;
  state_->membership->leave();
  if (state_->sockets) state_->sockets->leave();
  end();
}

void CollectiveGroup::end() {
  state_->membership.reset();
}

}  // namespace fleet::strategies
