#include "strategies/collective/collective_membership.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/process/at_exit.h"
#include "base/strings.h"
#include "transport/coordinator/coordinator.h"
#include "transport/coordinator/coordinator_client.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"
#include "transport/session/session.h"

namespace fleet::strategies {
transport::Hello hello_of(const MembershipOptions& options) {
  transport::Hello hello;
  hello.job_id = options.cluster.job_id;
  hello.member = {transport::PeerRole::kWorker, static_cast<uint32_t>(options.cluster.index)};
  hello.worker_num = static_cast<uint32_t>(options.cluster.worker_num);
  hello.instruction_set = transport::instruction_set();
  hello.require_same_bits = options.require_same_bits;
  hello.facts = options.facts;
  hello.lane = transport::LaneKind::kControl;
  std::byte random[sizeof hello.incarnation];
  transport::fill_random(random);
  std::memcpy(&hello.incarnation, random, sizeof random);
  return hello;
}

namespace {

// Where rank 0 listens: its own endpoint's host when the cluster has one.
std::string coordinator_host(const MembershipOptions& options) {
  const std::string own = options.cluster.current_endpoint();
  if (!own.empty()) return role_maker::parse_endpoint(own, "current endpoint").host;
  return options.host;
}

// More than the coordinator's client waits for the verdict that it asked for.
constexpr Duration kTellFor = std::chrono::seconds(2);

// What the control thread tells the training thread once.
struct Flag {
  std::mutex mutex;
  std::condition_variable changed;
  bool set = false;

  void raise() {
    const std::lock_guard guard(mutex);
    set = true;
    changed.notify_all();
  }
  bool wait(Duration timeout) {
    std::unique_lock guard(mutex);
    return changed.wait_for(guard, timeout, [this] { return set; });
  }
};

}  // namespace

struct CollectiveMembership::State {
  State(MembershipOptions options_, Logger logger_)
      : options(std::move(options_)), logger(std::move(logger_)), network(options.transport) {}

  MembershipOptions options;
  Logger logger;
  std::function<void(const Status&)> on_verdict;  // on the control loop; none once it was called
  transport::AsioNetwork network;
  Flag over;                      // every rank has left, or the job has ended
  std::atomic<bool> left{false};  // or is about to
  transport::LoopThread control{"fleet-control"};
  // On the control loop.
  std::unique_ptr<transport::Coordinator> coordinator;  // rank 0 only
  std::unique_ptr<transport::Server> listener;          // rank 0 only
  WaitList::Watch watch;                                // rank 0 only
  std::unique_ptr<transport::CoordinatorClient> member;
  std::optional<AtExit> at_exit;

  bool coordinates() const { return options.cluster.index == 0; }
  // Where it listens.
  Endpoint open_coordinator(const Endpoint& at);
  void join(const Endpoint& endpoint);
  void tell(const Status& verdict);
  void leave_early();
};

Endpoint CollectiveMembership::State::open_coordinator(const Endpoint& at) {
  Endpoint bound;
  control.run_there([this, &at, &bound] {
    coordinator = std::make_unique<transport::Coordinator>(
        control.loop(),
        transport::CoordinatorOptions{
            .worker_num = static_cast<uint32_t>(options.cluster.worker_num),
            .server_num = 0,
            .heartbeat_timeout = options.heartbeat_timeout,
            .reconnect_grace = options.reconnect_grace,
            .join_deadline = options.rpc_deadline,
            .stall_report = options.stall_report,
            .stall_deadline = options.stall_deadline},
        logger);
    coordinator->set_on_all_complete([this] { over.raise(); });
    coordinator->set_on_stall(options.on_stall);
    const transport::ServerLane lane{&control.loop(), coordinator.get()};
    listener = std::make_unique<transport::Server>(
        network, lane, lane,
        transport::ServerOptions{
            .endpoint = at, .hello = hello_of(options), .secret = options.secret},
        logger);
    listener->listen().throw_if_error();
    coordinator->start();
    if (options.waits) {
      watch = options.waits->watch("coordinator", control.loop(),
                                   [this] { return coordinator->waits(); });
    }
    bound = listener->bound();
  });
  return bound;
}

void CollectiveMembership::State::join(const Endpoint& endpoint) {
  control.run_there([&] {
    member = std::make_unique<transport::CoordinatorClient>(
        control.loop(), network,
        transport::CoordinatorClientOptions{.endpoint = endpoint,
                                            .coordinator = {transport::PeerRole::kWorker, 0},
                                            .hello = hello_of(options),
                                            .secret = options.secret,
                                            .heartbeat_interval = options.heartbeat_interval,
                                            .heartbeat_timeout = options.heartbeat_timeout,
                                            .reconnect_grace = options.reconnect_grace,
                                            .rpc_deadline = options.rpc_deadline,
                                            .awaits = options.awaits},
        logger);
    member->set_on_verdict(
        [this](const transport::Verdict& verdict) { tell(verdict.to_status()); });
    member->start();
  });
  at_exit.emplace([this] {
    leave_early();
    control.stop_and_join();
  });
}

void CollectiveMembership::State::tell(const Status& verdict) {
  over.raise();
  if (const auto notify = std::exchange(on_verdict, nullptr)) notify(verdict);
}

// Returns when the others have been told, or cannot be.
void CollectiveMembership::State::leave_early() {
  bool early = false;
  control.run_there([this, &early] {
    if (left || member->verdict()) return;
    early = true;
    const auto verdict = transport::left_early(
        {transport::PeerRole::kWorker, static_cast<uint32_t>(options.cluster.index)},
        member->phase(), member->step());
    if (coordinates()) {
      coordinator->abort(verdict);
    } else {
      logger.error("collective", "this rank leaves without stop_worker",
                   {{"culprit", verdict.culprit.to_string()},
                    {"phase", transport::phase_name(verdict.phase)},
                    {"step", verdict.step}});
      member->abort_async(verdict);
    }
    left = true;
  });
  if (early) over.wait(kTellFor);
}

CollectiveMembership::CollectiveMembership(MembershipOptions options, const Broadcast& broadcast,
                                           std::function<void(const Status&)> on_verdict,
                                           Logger logger)
    : state_(std::make_unique<State>(std::move(options), std::move(logger))) {
  state_->on_verdict = std::move(on_verdict);
  std::string mine;
  if (state_->coordinates()) {
    mine = state_->open_coordinator({coordinator_host(state_->options), 0}).to_string();
  }
  state_->join(Endpoint::parse(broadcast(mine), "rank 0's address").value());
}

CollectiveMembership::CollectiveMembership(MembershipOptions options, const Endpoint& coordinator,
                                           std::function<void(const Status&)> on_verdict,
                                           Logger logger)
    : state_(std::make_unique<State>(std::move(options), std::move(logger))) {
  state_->on_verdict = std::move(on_verdict);
  if (state_->coordinates()) (void)state_->open_coordinator(coordinator);
  state_->join(coordinator);
}

CollectiveMembership::~CollectiveMembership() {
  state_->at_exit.reset();
  state_->leave_early();
  state_->control.run_there([this] {
    state_->watch.drop();
    state_->member.reset();
    state_->listener.reset();
    state_->coordinator.reset();
  });
}

void CollectiveMembership::set_phase(transport::Phase phase, uint64_t step) {
  state_->member->set_phase(phase, step);
  state_->member->made_progress();
}

void CollectiveMembership::meet(const std::string& name) {
  state_->member->barrier(transport::Group::kWorkers, name, state_->options.rpc_deadline)
      .throw_if_error();
}

std::vector<std::string> CollectiveMembership::gather(const std::string& name,
                                                      const std::string& mine) {
  auto all = state_->member->reduce(transport::Group::kWorkers, name, transport::ReduceOp::kGather,
                                    std::vector<std::string>{mine}, state_->options.rpc_deadline);
  return std::get<std::vector<std::string>>(std::move(all.value()));
}

void CollectiveMembership::abort(transport::Verdict verdict) {
  if (!state_->member->verdict()) state_->member->abort(std::move(verdict));
}

void CollectiveMembership::leave() {
  state_->left = true;
  state_->member->complete().throw_if_error();
  if (!state_->coordinates()) return;
  if (!state_->over.wait(state_->options.rpc_deadline)) {
    throw_error(ErrorCode::kDeadline, {.what = "not every rank left the job",
                                       .where = "rank 0",
                                       .expected = "all ranks call stop_worker()",
                                       .got = "no word from at least one of them",
                                       .fix = "look at the log of the ranks that still run"});
  }
  verdict().throw_if_error();
  state_->control.run_there([this] { state_->listener->finish(); });
}

Status CollectiveMembership::verdict() const {
  const auto verdict = state_->member->verdict();
  return verdict ? verdict->to_status() : Status();
}

}  // namespace fleet::strategies
