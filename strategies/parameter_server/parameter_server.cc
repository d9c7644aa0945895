#include "strategies/parameter_server/parameter_server.h"

#include <algorithm>
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

SyncServerOptions core_options(const ParameterServerConfig& config, const Catalogue& catalogue) {
  SyncServerOptions options;
  options.epoch = config.epoch;
  options.workers = config.worker_num;
  options.shards = config.shards();
  options.lanes = config.data_lanes;
  for (uint32_t i = 0; i < catalogue.trained; ++i) {
    options.slices.push_back({catalogue.entries[i].bytes(), catalogue.entries[i].dtype});
  }
  options.variables = static_cast<uint32_t>(catalogue.entries.size());
  options.mutations = config.mutations;
  return options;
}

}  // namespace

ParameterServer::ParameterServer(const ParameterServerConfig& config, ServerModel model,
                                 ServingEvents events, Logger logger)
    : ServerLanes(config, std::move(model), std::move(events), std::move(logger)),
      core_(core_options(config_, model_.catalogue), *this) {}

std::vector<std::string> ParameterServer::waits() const {
  std::vector<std::string> lines;
  for (const uint32_t worker : core_.missing()) {
    lines.push_back(str_cat("step ", core_.step() + 1, " waits for worker ", worker));
  }
  return lines;
}

PayloadTarget ParameterServer::prepare_payload(Session& session, const FrameHeader& header,
                                               ConstBytes) {
  Status status = check_sender(session, header);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  if (header.verb == Verb::kPush) {
    return core_.prepare_push({session.peer().member.index, session.id()}, PieceKey::of(header),
                              header.payload_bytes);
  }
  if (header.verb == Verb::kInit) return prepare_initial(header);
  return PayloadTarget::refuse(refused("a frame must not have a payload", "push or init",
                                       std::string(transport::verb_name(header.verb))));
}

Status ParameterServer::handle(Session& session, const FrameHeader& header, ConstBytes control,
                               MutableBytes payload) {
  const uint32_t worker = session.peer().member.index;
  switch (header.verb) {
    case Verb::kPush: {
      Status status = core_.push({worker, session.id()}, PieceKey::of(header), payload);
      if (status.ok() && !header.has(transport::kFlagMore)) {
        session.send(transport::make_reply(header));
      }
      return status;
    }
    case Verb::kSendBarrier: {
      Status status = core_.barrier(worker, header.step, header.piece);
      if (!status.ok()) return status;
      [[fallthrough]];
    }
    case Verb::kGet: {
      Result<GetCall> call = read_get(session, header, control);
      return call.ok() ? core_.get(std::move(call).value()) : call.status();
    }
    case Verb::kInit:
      return handle_init(session, header);
    case Verb::kNotify: {
      Status status = core_.complete(worker, header.step);
      if (status.ok()) session.send(transport::make_reply(header));
      return status;
    }
    default:
      return refused("a frame has no meaning on a data lane", "push, get, barrier, init or notify",
                     std::string(transport::verb_name(header.verb)));
  }
}

MutableBytes ParameterServer::gradient(uint32_t slice) {
  fluid::Tensor& tensor = model_.shards[slice]->gradient();
  return {tensor.raw(), tensor.bytes()};
}

void ParameterServer::begin_step(uint64_t step) {
  if (model_.learning_rate) model_.learning_rate(step);
}

void ParameterServer::update(uint32_t slice, uint64_t step, int shards) {
  if (shards > 0) {
    model_.shards[slice]->apply({step, shards});
  } else {
    model_.shards[slice]->keep(step);
  }
}

void ParameterServer::answer(const GetCall& get, uint32_t variable, bool last) {
  send_value(get, variable, value_of(variable), get.step, last);
}

void ParameterServer::answer_empty(const GetCall& get) {
  send_empty(get);
}

void ParameterServer::step_closed(uint64_t step) {
  if (events_.on_step) events_.on_step(step);
}

void ParameterServer::all_complete() {
  if (events_.on_all_complete) events_.on_all_complete();
}

}  // namespace fleet::strategies
