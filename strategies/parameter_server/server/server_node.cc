#include "strategies/parameter_server/server/server_node.h"

#include <utility>

#include "base/strings.h"

namespace fleet::strategies {

using transport::Phase;

ServerNode::ServerNode(NodeEnvironment environment, ParameterServerConfig config,
                       const MakeLanes& make_lanes, Logger logger)
    : environment_(std::move(environment)),
      config_(std::move(config)),
      logger_(std::move(logger)),
      data_posts_(*environment_.data_loop),
      all_complete_(config_.index != 0) {
  ServingEvents events;
  events.on_step = [this](uint64_t step) {
    if (member_) member_->set_phase(Phase::kServing, step);
    if (config_.observer) config_.observer->updates = step;
  };
  events.on_all_complete = [this] { on_data_loop([this] { complete(); }); };
  events.send_to_server = [this](uint32_t server, std::vector<transport::Message> frames) {
    on_data_loop([this, server, frames = std::move(frames)]() mutable {
      links_->send(server, std::move(frames));
    });
  };
  if (update_threads() > 0) {
    events.offload = [this](std::function<void()> work, std::function<void()> done) {
      offload(std::move(work), std::move(done));
    };
  }
  events.run_later = [this](std::function<void()> work) {
    environment_.data_loop->post([work = std::move(work), alive = alive_] {
      if (*alive) work();
    });
  };
  events.on_failure = [this](const Status& why, uint64_t step) {
    fail({transport::PeerRole::kServer, config_.index}, why, step);
  };
  if (!environment_.lane_loops.empty()) {
    events.lane_loops = environment_.lane_loops;
    events.lane_loops.insert(events.lane_loops.begin(), environment_.data_loop);
  }
  server_ = make_lanes(std::move(events));
  if (config_.observer == nullptr) return;
  server_watch_ = config_.observer->waits.watch("server", *environment_.data_loop,
                                                [this] { return server_->waits(); });
}

ServerNode::~ServerNode() {
  *alive_ = false;
  if (environment_.end_lanes) environment_.end_lanes();
  server_watch_.drop();
  pool_.reset();
  links_.reset();
  const auto drop_control = [this] {
    member_.reset();
    if (coordinates()) listener_.reset();
    coordinator_watch_.drop();
    coordinator_.reset();
  };
  environment_.on_control(drop_control);
  listener_.reset();
}

Status ServerNode::start() {
  Status status;
  const auto listen = [&] {
    transport::ServerOptions options;
    options.endpoint = config_.servers.at(config_.index);
    options.hello = make_hello(config_, transport::PeerRole::kServer, environment_.incarnation);
    options.secret = config_.secret;
    options.random = environment_.random;
    std::vector<transport::ServerLane> data = {{environment_.data_loop, server_.get()}};
    for (Loop* loop : environment_.lane_loops) data.push_back({loop, server_.get()});
    transport::ServerLane control = data.front();
    if (coordinates()) {
      transport::CoordinatorOptions coordinator;
      coordinator.worker_num = config_.worker_num;
      coordinator.server_num = config_.server_num();
      coordinator.heartbeat_timeout = config_.heartbeat_timeout;
      coordinator.reconnect_grace = config_.reconnect_grace;
      coordinator.join_deadline = config_.rpc_deadline;
      coordinator.stall_report = config_.stall_report;
      coordinator.stall_deadline = config_.stall_deadline;
      coordinator_ = std::make_unique<transport::Coordinator>(*environment_.control_loop,
                                                              coordinator, logger_);
      control = {environment_.control_loop, coordinator_.get()};
      if (config_.observer) {
        coordinator_watch_ = config_.observer->waits.watch(
            "coordinator", *environment_.control_loop, [this] { return coordinator_->waits(); });
        coordinator_->set_on_stall(
            [observer = config_.observer](const auto& stall) { observer->set_stall(stall); });
      }
    }
    listener_ = std::make_unique<transport::Server>(*environment_.network, control, data,
                                                    std::move(options), logger_);
    status = listener_->listen();
  };
  if (coordinates()) {
    environment_.on_control(listen);
  } else {
    listen();
  }
  if (!status.ok()) return status;
  environment_.on_control([this] { start_control(); });
  if (!server_->model().exchanges.empty() && config_.server_num() > 1) start_links();
  return {};
}

void ServerNode::start_links() {
  const auto on_failure = [this](uint32_t server, const Status& why) {
    if (!server_->all_complete())
      fail({transport::PeerRole::kServer, server}, why, server_->step() + 1);
  };
  links_ = std::make_unique<ServerLinks>(environment_, config_, on_failure, logger_);
  links_->start();
}

void ServerNode::start_control() {
  if (coordinates()) {
    coordinator_->set_on_all_complete([this, alive = alive_] {
      environment_.data_loop->post([this, alive] {
        if (*alive) all_complete_ = true;
      });
    });
    coordinator_->start();
  }
  const Endpoint endpoint = coordinates() ? listener_->bound() : config_.servers.front();
  member_ = std::make_unique<transport::CoordinatorClient>(
      *environment_.control_loop, *environment_.network,
      make_member_options(config_, environment_, transport::PeerRole::kServer, endpoint), logger_);
  member_->set_on_verdict([this, alive = alive_](const transport::Verdict& verdict) {
    environment_.data_loop->post([this, alive, verdict] {
      if (*alive) on_verdict(verdict);
    });
  });
  member_->set_on_workers_complete([this] {
    workers_complete_ = true;
    tell_complete();
  });
  member_->set_phase(Phase::kServing, 0);
  member_->start();
}

Endpoint ServerNode::bound() const {
  return listener_->bound();
}

void ServerNode::on_verdict(const transport::Verdict& verdict) {
  if (status_.ok()) status_ = verdict.to_status();
}

void ServerNode::on_data_loop(std::function<void()> work) {
  if (environment_.lane_loops.empty()) return work();
  data_posts_.post([work = std::move(work), alive = alive_] {
    if (*alive) work();
  });
}

void ServerNode::offload(std::function<void()> work, std::function<void()> done) {
  if (!pool_) pool_ = std::make_unique<UpdatePool>(update_threads());
  pool_->run([this, work = std::move(work), done = std::move(done), alive = alive_] {
    work();
    environment_.data_loop->post([done, alive] {
      if (*alive) done();
    });
  });
}

void ServerNode::fail(transport::MemberId culprit, const Status& why, uint64_t step) {
  transport::Verdict verdict;
  verdict.culprit = culprit;
  verdict.phase = Phase::kUpdating;
  verdict.step = step;
  verdict.code = why.code();
  verdict.reason = why.text().what;
  environment_.control_loop->post([this, alive = alive_, verdict] {
    if (*alive) member_->abort_async(verdict);
  });
}

void ServerNode::complete() {
  if (links_) links_->finish();
  member_->set_phase(Phase::kFinishing, server_->step());
  environment_.control_loop->post([this, alive = alive_] {
    if (!*alive) return;
    served_ = true;
    tell_complete();
  });
}

// An answer may be lost with its connection: a server is there until every worker has all of its
// answers, which is when it tells the coordinator that it is done.
void ServerNode::tell_complete() {
  if (!served_ || !workers_complete_) return;
  member_->complete_async([this, alive = alive_](const Status& status) {
    environment_.data_loop->post([this, alive, status] {
      if (!*alive) return;
      completed_ = status.ok();
      if (!status.ok() && status_.ok()) status_ = status;
    });
  });
}

void ServerNode::serve() {
  if (environment_.start_lanes) environment_.start_lanes();
  const auto over = [this] { return finished() || !status_.ok(); };
  const bool driven = environment_.data_loop->run_until(over, TimePoint::max());
  if (!driven && !over()) {
    status_ = {ErrorCode::kCancelled,
               {.what = "the server was stopped while workers trained",
                .where = str_cat("server ", config_.index),
                .expected = {},
                .got = {},
                .fix = {}}};
  }
  status_.throw_if_error();
  if (listener_) {
    const auto finish = [this] { listener_->finish(); };
    if (coordinates()) {
      environment_.on_control(finish);
    } else {
      finish();
    }
  }
}

}  // namespace fleet::strategies
