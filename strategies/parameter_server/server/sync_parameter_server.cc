#include "strategies/parameter_server/server/sync_parameter_server.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/server/update_pool.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Session;
using transport::Verb;

SyncServerOptions core_options(const ParameterServerConfig& config, const ServerModel& model,
                               ServerExchange& exchange,
                               std::shared_ptr<const SyncServerRules> rules) {
  const ParameterIndex& parameter_index = model.parameter_index;
  SyncServerOptions options;
  options.workers = config.worker_num;
  options.shards = config.shards();
  options.lanes = config.data_lanes;
  for (uint32_t i = 0; i < parameter_index.trained; ++i) {
    options.slices.push_back(SliceGeometry::of(parameter_index.entries[i]));
    options.gradients.push_back(&model.shards[i]->gradient());
    options.stages.push_back(static_cast<uint32_t>(model.shards[i]->stages()));
  }
  options.variables = static_cast<uint32_t>(parameter_index.entries.size());
  options.exchange = &exchange;
  options.window_bytes = config.gradient_window_bytes;
  options.rules = std::move(rules);
  return options;
}

}  // namespace

ParameterServer::ParameterServer(const ParameterServerConfig& config, ServerModel model,
                                 ServingEvents events, Logger logger,
                                 std::shared_ptr<const SyncServerRules> rules)
    : ServerLanes(config, std::move(model), std::move(events), std::move(logger)),
      exchange_(config_.index, config_.server_num(), model_.exchanges, events_.send_to_server),
      core_(core_options(config_, model_, exchange_, std::move(rules)), *this) {
  model_.parameter_index.open = core_.open_at_begin();
}

std::vector<std::string> ParameterServer::waits() const {
  const Lock locked = lock();
  std::vector<std::string> lines;
  for (const uint32_t worker : core_.missing()) {
    lines.push_back(str_cat("step ", core_.step() + 1, " waits for worker ", worker));
  }
  for (const uint32_t server : core_.missing_servers()) {
    lines.push_back(str_cat("step ", core_.step() + 1, " waits for server ", server));
  }
  return lines;
}

PayloadTarget ParameterServer::prepare_push(Session& session, const FrameHeader& header,
                                            ConstBytes control) {
  const uint32_t sender = session.peer().member.index;
  const PieceKey key = PieceKey::of(header, control);
  if (!from_server(session) && !key.rows) {
    return core_.prepare_push({sender, session.id()}, key, header.payload_bytes);
  }
  const Lock locked = lock();
  if (from_server(session)) {
    return exchange_.prepare(sender, session.id(), header, core_.step() + 1);
  }
  return core_.prepare_push({sender, session.id()}, key, header.payload_bytes);
}

Status ParameterServer::handle(Session& session, const FrameHeader& header, ConstBytes control,
                               MutableBytes payload) {
  if (header.verb == Verb::kPush && !from_server(session)) {
    const Sender sender{session.peer().member.index, session.id()};
    return answered(session, header, push(sender, PieceKey::of(header, control), payload));
  }
  Lock locked = lock();
  Status status = handle_locked(session, header, control, payload);
  run_updates(locked);
  return status;
}

Status ParameterServer::push(const Sender& sender, const PieceKey& key, MutableBytes payload) {
  if (key.rows || !has_threads()) {
    Lock locked = lock();
    Status status = core_.push(sender, key, payload);
    run_updates(locked);
    return status;
  }
  const Result<PieceProgress> progress = core_.sum(sender, key, payload);
  if (!progress.ok() || !core_.matters(progress.value())) return progress.status();
  Lock locked = lock();
  core_.count(sender, key, progress.value());
  run_updates(locked);
  return {};
}

Status ParameterServer::handle_locked(Session& session, const FrameHeader& header,
                                      ConstBytes control, MutableBytes payload) {
  if (from_server(session)) return take_part(session, header, payload);
  const uint32_t worker = session.peer().member.index;
  switch (header.verb) {
    case Verb::kSendBarrier: {
      Status status = core_.barrier(worker, header.step, header.piece);
      if (!status.ok()) return status;
      [[fallthrough]];
    }
    case Verb::kGet: {
      Result<GetCall> call = read_get(session, header, control, payload);
      return call.ok() ? core_.get(std::move(call).value()) : call.status();
    }
    case Verb::kCredit:
      return core_.credit({session.id(), header.request_id, worker, header.step,
                           session.peer().lane_index, header.variable, header.piece});
    case Verb::kInit:
      return handle_init(session, header, payload);
    case Verb::kNotify:
      return answered(session, header, core_.complete(worker, header.step));
    case Verb::kSnapshot:
      return handle_snapshot(session, header, control);
    default:
      return bad_frame("a frame has no meaning on a data lane",
                       "push, get, barrier, credit, init, notify or snapshot",
                       std::string(transport::verb_name(header.verb)));
  }
}

// The frame is answered before the step goes on: what goes wrong then is this server's own.
Status ParameterServer::take_part(Session& session, const FrameHeader& header,
                                  MutableBytes payload) {
  Status status =
      exchange_.take(session.peer().member.index, session.id(), header, payload, core_.step() + 1);
  status = answered(session, header, std::move(status));
  if (!status.ok()) return status;
  const Status advanced = outcome_of([this] { core_.exchange_advanced(); });
  if (!advanced.ok() && events_.on_failure) events_.on_failure(advanced, core_.step() + 1);
  return {};
}

void ParameterServer::drop_session(uint64_t session) {
  const Lock locked = lock();
  core_.drop_session(session);
  exchange_.drop_session(session);
}

void ParameterServer::begin_step(uint64_t step) {
  if (model_.learning_rate) model_.learning_rate(step);
}

bool ParameterServer::update(uint32_t slice, const StepUpdate& update) {
  StateShard& shard = *model_.shards[slice];
  const bool last = update.stage + 1 == shard.stages();
  if (last && update.shards == 0) return true;
  const bool large = model_.parameter_index.entries[slice].bytes() >= config_.offload_update_bytes;
  const bool in_pool = events_.offload && large;
  if (!last || (!in_pool && !has_threads())) {
    shard.apply(update);
    if (last) look_at_updates();
    return true;
  }
  shard.own();
  if (!in_pool) {
    updates_.push_back({slice, update});
    return false;
  }
  const auto outcome = std::make_shared<Status>();
  const auto apply = [&shard, update, outcome] {
    *outcome = outcome_of([&] { shard.apply(update); });
  };
  events_.offload(apply, [this, slice, outcome] {
    Lock locked = lock();
    finish_update(slice, *outcome);
    run_updates(locked);
  });
  return false;
}

void ParameterServer::finish_update(uint32_t slice, const Status& outcome) {
  if (outcome.ok()) {
    look_at_updates();
    core_.updated(slice);
  } else if (events_.on_failure) {
    events_.on_failure(outcome, core_.step() + 1);
  }
}

void ParameterServer::run_updates(Lock& locked) {
  while (!updates_.empty()) {
    const StepOfSlice next = updates_.front();
    updates_.pop_front();
    locked.unlock();
    const Status outcome = outcome_of([&] { model_.shards[next.slice]->apply(next.update); });
    locked.lock();
    finish_update(next.slice, outcome);
  }
}

void ParameterServer::step_closed(uint64_t step) {
  if (events_.on_step) events_.on_step(step);
}

void ParameterServer::all_complete() {
  if (events_.on_all_complete) events_.on_all_complete();
}

}  // namespace fleet::strategies
