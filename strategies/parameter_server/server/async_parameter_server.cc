#include "strategies/parameter_server/server/async_parameter_server.h"

#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Session;
using transport::Verb;

AsyncServerOptions core_options(const ParameterServerConfig& config,
                                const ParameterIndex& parameter_index,
                                std::function<void(const AsyncEvent&)> on_event,
                                std::shared_ptr<const AsyncServerRules> rules) {
  AsyncServerOptions options;
  options.workers = config.worker_num;
  options.lanes = config.data_lanes;
  for (uint32_t i = 0; i < parameter_index.trained; ++i) {
    options.slices.push_back(SliceGeometry::of(parameter_index.entries[i]));
  }
  options.variables = static_cast<uint32_t>(parameter_index.entries.size());
  options.on_event = std::move(on_event);
  options.rules = std::move(rules);
  return options;
}

}  // namespace

AsyncParameterServer::AsyncParameterServer(const ParameterServerConfig& config,
                                           AsyncServerModel model, ServingEvents events,
                                           Logger logger,
                                           std::function<void(const AsyncEvent&)> on_event,
                                           std::shared_ptr<const AsyncServerRules> rules)
    : ServerLanes(config, std::move(model.server), std::move(events), std::move(logger)),
      on_value_(std::move(model.on_value)),
      on_rows_(std::move(model.on_rows)),
      on_sender_(std::move(model.on_sender)),
      core_(core_options(config_, model_.parameter_index, std::move(on_event), std::move(rules)),
            *this) {}

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
  const uint32_t worker = session.peer().member.index;
  switch (header.verb) {
    case Verb::kPush:
      return answered(session, header,
                      core_.push({worker, session.id()}, PieceKey::of(header, control), payload));
    case Verb::kGet: {
      Result<GetCall> call = read_get(session, header, control, payload);
      return call.ok() ? core_.get(std::move(call).value()) : call.status();
    }
    case Verb::kInit: {
      Status status = handle_init(session, header, payload);
      if (status.ok() && on_value_ && header.payload_bytes > 0 &&
          header.variable < model_.shards.size()) {
        for (uint32_t i = 0; i < config_.worker_num; ++i) {
          on_value_(i, header.variable, value_of(header.variable));
        }
      }
      return status;
    }
    case Verb::kNotify:
      return answered(session, header, core_.complete(worker, header.step));
    case Verb::kSnapshot:
      return handle_snapshot(session, header, control);
    default:
      return bad_frame("a frame has no meaning on a data lane of an asynchronous server",
                       "push, get, init, notify or snapshot",
                       std::string(transport::verb_name(header.verb)));
  }
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
  if (on_sender_) on_sender_(update.worker);
  shard.apply({.step = update.version, .shards = static_cast<int>(update.merged), .stage = 0});
  look_at_updates(update.worker, update.clock - 1);
}

void AsyncParameterServer::answer(const ServerAnswer& answer) {
  const uint32_t variable = answer.variable;
  if (answer.has_value && variable < model_.shards.size()) {
    if (answer.rows != nullptr && on_rows_) {
      on_rows_(answer.worker, variable, *answer.rows, value_of(variable));
    }
    if (answer.rows == nullptr && on_value_) on_value_(answer.worker, variable, value_of(variable));
  }
  send(answer);
}

void AsyncParameterServer::all_complete() {
  if (events_.on_all_complete) events_.on_all_complete();
}

}  // namespace fleet::strategies
