#include "strategies/parameter_server/server/sync_parameter_server.h"

#include <memory>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/server/update_pool.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Session;
using transport::Verb;

}  // namespace

SyncParameterServer::SyncParameterServer(const ParameterServerConfig& config, ServerModel model,
                                         ServingEvents events, Logger logger,
                                         std::shared_ptr<const SyncServerRules> rules)
    : ServerLanes(config, std::move(model), std::move(events), std::move(logger)),
      exchange_(config_.index, config_.server_num(), model_.exchanges, events_.send_to_server),
      core_(sync_options(std::move(rules)), *this) {
  model_.parameter_index.open = core_.open_at_begin();
  model_.parameter_index.free_row_bytes = core_.free_row_bytes();
}

SyncServerOptions SyncParameterServer::sync_options(std::shared_ptr<const SyncServerRules> rules) {
  auto options = core_options<SyncServerOptions>();
  options.shards = config_.shards();
  for (const auto& shard : model_.shards) {
    options.gradients.push_back(&shard->gradient());
    options.stages.push_back(static_cast<uint32_t>(shard->stages()));
  }
  options.exchange = &exchange_;
  options.window_bytes = config_.gradient_window_bytes;
  options.rules = std::move(rules);
  return options;
}

std::vector<std::string> SyncParameterServer::waits() const {
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

PayloadTarget SyncParameterServer::prepare_push(Session& session, const FrameHeader& header,
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

Status SyncParameterServer::handle(Session& session, const FrameHeader& header, ConstBytes control,
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

Status SyncParameterServer::push(const Sender& sender, const PieceKey& key, MutableBytes payload) {
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

Status SyncParameterServer::handle_locked(Session& session, const FrameHeader& header,
                                          ConstBytes control, MutableBytes payload) {
  if (from_server(session)) return take_part(session, header, payload);
  const uint32_t worker = session.peer().member.index;
  if (header.verb == Verb::kSendBarrier) {
    Status status = core_.barrier(worker, header.step, header.piece);
    return status.ok() ? handle_get(session, header, control, payload) : status;
  }
  if (header.verb == Verb::kCredit) {
    CreditCall call{session.id(), header.request_id,         worker,
                    header.step,  session.peer().lane_index, header.variable,
                    header.piece};
    if (header.has(kFlagRows)) call.rows = PieceKey::of(header, control);
    return core_.credit(call);
  }
  return handle_common(session, header, control, payload);
}

// The frame is answered before the step goes on: what goes wrong then is this server's own.
Status SyncParameterServer::take_part(Session& session, const FrameHeader& header,
                                      MutableBytes payload) {
  Status status =
      exchange_.take(session.peer().member.index, session.id(), header, payload, core_.step() + 1);
  status = answered(session, header, std::move(status));
  if (!status.ok()) return status;
  const Status advanced = outcome_of([this] { core_.exchange_advanced(); });
  if (!advanced.ok() && events_.on_failure) events_.on_failure(advanced, core_.step() + 1);
  return {};
}

void SyncParameterServer::drop_session(uint64_t session) {
  const Lock locked = lock();
  core_.drop_session(session);
  exchange_.drop_session(session);
}

void SyncParameterServer::begin_step(uint64_t step) {
  if (model_.learning_rate) model_.learning_rate(step);
}

bool SyncParameterServer::update(uint32_t slice, const StepUpdate& update) {
  StateShard& shard = *model_.shards[slice];
  const bool last = update.stage + 1 == shard.stages();
  if (last && update.shards == 0) return true;
  const ParameterEntry& entry = model_.parameter_index.entries[slice];
  const bool large = entry.growing || entry.bytes() >= config_.offload_update_bytes;
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

void SyncParameterServer::finish_update(uint32_t slice, const Status& outcome) {
  if (outcome.ok()) {
    look_at_updates();
    core_.updated(slice);
  } else if (events_.on_failure) {
    events_.on_failure(outcome, core_.step() + 1);
  }
}

void SyncParameterServer::run_updates(Lock& locked) {
  while (!updates_.empty()) {
    const StepOfSlice next = updates_.front();
    updates_.pop_front();
    locked.unlock();
    const Status outcome = outcome_of([&] { model_.shards[next.slice]->apply(next.update); });
    locked.lock();
    finish_update(next.slice, outcome);
  }
}

void SyncParameterServer::step_closed(uint64_t step) {
  if (events_.on_step) events_.on_step(step);
}

void SyncParameterServer::all_complete() {
  if (events_.on_all_complete) events_.on_all_complete();
}

}  // namespace fleet::strategies
