#include "strategies/parameter_server/server/async_parameter_server.h"

#include <cstring>
#include <utility>

#include "base/strings.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Session;
using transport::Verb;

}  // namespace

AsyncParameterServer::AsyncParameterServer(const ParameterServerConfig& config, ServerModel model,
                                           ServingEvents events, Logger logger,
                                           std::function<void(const AsyncEvent&)> on_event,
                                           std::shared_ptr<const AsyncServerRules> rules)
    : ServerLanes(config, std::move(model), std::move(events), std::move(logger)),
      core_(async_options(std::move(on_event), std::move(rules)), *this) {}

AsyncServerOptions AsyncParameterServer::async_options(
    std::function<void(const AsyncEvent&)> on_event,
    std::shared_ptr<const AsyncServerRules> rules) const {
  auto options = core_options<AsyncServerOptions>();
  options.on_event = std::move(on_event);
  options.rules = std::move(rules);
  return options;
}

std::vector<std::string> AsyncParameterServer::waits() const {
  const Lock locked = lock();
  std::vector<std::string> lines;
  for (const uint32_t worker : core_.missing()) {
    lines.push_back(str_cat("workers wait for worker ", worker, ", which has made ",
                            core_.clock(worker), " steps"));
  }
  return lines;
}

PayloadTarget AsyncParameterServer::prepare_push(Session& session, const FrameHeader& header,
                                                 ConstBytes control) {
  const Lock locked = lock();
  return core_.prepare_push({session.peer().member.index, session.id()},
                            PieceKey::of(header, control), header.payload_bytes);
}

Status AsyncParameterServer::handle(Session& session, const FrameHeader& header, ConstBytes control,
                                    MutableBytes payload) {
  const Lock locked = lock();
  if (header.verb != Verb::kPush) return handle_common(session, header, control, payload);
  const Sender sender{session.peer().member.index, session.id()};
  return answered(session, header, core_.push(sender, PieceKey::of(header, control), payload));
}

void AsyncParameterServer::drop_session(uint64_t session) {
  const Lock locked = lock();
  core_.drop_session(session);
}

void AsyncParameterServer::begin_clock(uint64_t gradients) {
  if (model_.learning_rate) model_.learning_rate(gradients);
  if (events_.on_step) events_.on_step(gradients);
}

void AsyncParameterServer::update(const AsyncUpdate& update, const Buffer& gradient) {
  const ParameterEntry& entry = model_.parameter_index.entries[update.slice];
  apply(update, fluid::Tensor(entry.dtype, fluid::Shape(entry.shape), gradient, 0));
}

void AsyncParameterServer::update_rows(const AsyncUpdate& update, const RowContribution& gradient) {
  const ParameterEntry& entry = model_.parameter_index.entries[update.slice];
  fluid::SelectedRows rows;
  rows.rows.assign(gradient.numbers().begin(), gradient.numbers().end());
  rows.height = entry.height();
  fluid::Shape shape(entry.shape);
  shape.set(0, static_cast<int64_t>(rows.rows.size()));
  rows.value = fluid::Tensor(entry.dtype, shape);
  if (rows.value.bytes() > 0) {
    std::memcpy(rows.value.raw(), gradient.values(), rows.value.bytes());
  }
  apply(update, std::move(rows));
}

void AsyncParameterServer::apply(const AsyncUpdate& update, fluid::Value gradient) {
  if (config_.observer) config_.observer->staleness = core_.staleness().mean();
  StateShard& shard = *model_.shards[update.slice];
  shard.gradient() = std::move(gradient);
  if (model_.on_sender) model_.on_sender(update.worker);
  shard.apply({.step = update.version, .shards = static_cast<int>(update.merged), .stage = 0});
  look_at_updates(update.worker, update.clock - 1);
}

void AsyncParameterServer::answer(const ServerAnswer& answer) {
  const uint32_t variable = answer.variable;
  if (answer.has_value && variable < model_.shards.size()) {
    if (answer.rows != nullptr && model_.on_rows) {
      model_.on_rows(answer.worker, variable, *answer.rows, value_of(variable));
    }
    if (answer.rows == nullptr && model_.on_value) {
      model_.on_value(answer.worker, variable, value_of(variable));
    }
  }
  send(answer);
}

void AsyncParameterServer::all_complete() {
  if (events_.on_all_complete) events_.on_all_complete();
}

}  // namespace fleet::strategies
