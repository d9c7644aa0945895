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

// Answers of that many bytes leave before the rest of the answer is there.
constexpr size_t kFlushBytes = 128 * 1024;

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

Status refused(std::string what, std::string expected, std::string got) {
  return {ErrorCode::kBadFrame,
          {.what = std::move(what),
           .where = "parameter server",
           .expected = std::move(expected),
           .got = std::move(got),
           .fix = "run the same program, configuration and version in every process"}};
}

}  // namespace

ParameterServer::ParameterServer(const ParameterServerConfig& config, ServerModel model,
                                 Events events, Logger logger)
    : config_(config),
      model_(std::move(model)),
      events_(std::move(events)),
      logger_(std::move(logger)),
      core_(core_options(config_, model_.catalogue), *this) {}

std::vector<std::string> ParameterServer::waits() const {
  std::vector<std::string> lines;
  for (const uint32_t worker : core_.missing()) {
    lines.push_back(str_cat("step ", core_.step() + 1, " waits for worker ", worker));
  }
  return lines;
}

Loop* ParameterServer::on_open(Session& session) {
  peers_[session.id()] = {&session, 0};
  return nullptr;
}

void ParameterServer::on_closed(Session& session, const Status& why) {
  if (peers_.erase(session.id()) == 0) return;
  if (!why.ok()) {
    logger_.debug("server", "a data lane closed",
                  {{"peer", session.describe()}, {"why", why.text().what}});
  }
  core_.drop_session(session.id());
}

Status ParameterServer::check_sender(const Session& session, const FrameHeader& header) const {
  const transport::MemberId member = session.peer().member;
  if (member.role != transport::Role::kWorker || member.index >= config_.worker_num) {
    return refused("only workers of the job may train",
                   str_cat("worker 0 to ", config_.worker_num - 1), member.to_string());
  }
  if (header.epoch != config_.epoch) {
    return refused("a frame is of another run of the job", str_cat("epoch ", config_.epoch),
                   str_cat("epoch ", header.epoch));
  }
  return {};
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

PayloadTarget ParameterServer::prepare_initial(const FrameHeader& header) {
  if (!core_.untouched()) return PayloadTarget::discard();  // on_frame says why
  if (header.variable >= model_.tensors.size()) {
    return PayloadTarget::refuse(refused("a value came for a variable that is not here",
                                         str_cat("ids below ", model_.tensors.size()),
                                         str_cat(header.variable)));
  }
  fluid::Tensor& tensor = *model_.tensors[header.variable];
  if (header.piece >= pieces_of(tensor.bytes()) ||
      header.payload_bytes != piece_bytes(tensor.bytes(), header.piece)) {
    return PayloadTarget::refuse(
        refused("a piece of an initial value has the wrong size",
                str_cat("a piece of ", tensor.bytes(), " bytes"),
                str_cat("piece ", header.piece, " with ", header.payload_bytes, " bytes")));
  }
  fluid::Tensor spare;
  detach(tensor, spare);
  return PayloadTarget::into({tensor.raw() + piece_offset(header.piece), header.payload_bytes});
}

void ParameterServer::on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                               MutableBytes payload) {
  Status status = check_sender(session, header);
  if (status.ok()) status = handle(session, header, control, payload);
  if (status.ok()) return;
  logger_.warning("server", "a request was refused",
                  {{"peer", session.describe()}, {"why", status.to_string()}});
  if (header.request_id != 0) session.send(transport::make_error_reply(header, status));
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
      return status.ok() ? handle_get(session, header, control) : status;
    }
    case Verb::kGet:
      return handle_get(session, header, control);
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

Status ParameterServer::handle_get(Session& session, const FrameHeader& header,
                                   ConstBytes control) {
  GetCall call;
  call.session = session.id();
  call.request = header.request_id;
  call.step = header.step;
  if (header.variable == kAllVariables) {
    call.all = true;
    call.lane = session.peer().lane_index;
  } else if (header.variable == kListedVariables) {
    auto list = decode<std::vector<uint32_t>>(control, "the variables of a get");
    if (!list.ok()) return list.status();
    call.variables = std::move(list).value();
  } else if (header.variable != kNoVariables) {
    call.variables = {header.variable};
  }
  return core_.get(std::move(call));
}

Status ParameterServer::handle_init(Session& session, const FrameHeader& header) {
  if (header.payload_bytes == 0) {
    Catalogue catalogue = model_.catalogue;
    catalogue.step = core_.step();
    transport::Message reply = transport::make_reply(header);
    reply.control = encode(catalogue);
    session.send(std::move(reply));
    return {};
  }
  if (!core_.untouched()) {
    return refused("initial values come before the first step", "step 0",
                   str_cat("step ", core_.step() + 1));
  }
  if (!header.has(transport::kFlagMore)) session.send(transport::make_reply(header));
  return {};
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
  const auto found = peers_.find(get.session);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  // Only slices have versions that stay while others read them; the rest is small or rare.
  const fluid::Tensor value = variable < model_.shards.size()
                                  ? model_.shards[variable]->read().value
                                  : model_.tensors[variable]->clone();
  const uint32_t pieces = std::max<uint32_t>(1, pieces_of(value.bytes()));
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    transport::Message message;
    message.header.verb = Verb::kReply;
    if (!last || piece + 1 < pieces) message.header.flags = transport::kFlagMore;
    message.header.request_id = get.request;
    message.header.step = get.step;
    message.header.epoch = config_.epoch;
    message.header.variable = variable;
    message.header.piece = piece;
    if (value.bytes() > 0) {
      message.payload = {value.raw() + piece_offset(piece), piece_bytes(value.bytes(), piece),
                         value.buffer().owner()};
    }
    peer.unflushed += transport::kHeaderBytes + message.payload.size;
    peer.session->send(std::move(message), false);
  }
  if (last || peer.unflushed >= kFlushBytes) {
    peer.unflushed = 0;
    peer.session->flush();
  }
}

void ParameterServer::answer_empty(const GetCall& get) {
  const auto found = peers_.find(get.session);
  if (found == peers_.end()) return;
  transport::Message message;
  message.header.verb = Verb::kReply;
  message.header.request_id = get.request;
  message.header.step = get.step;
  message.header.epoch = config_.epoch;
  message.header.variable = kNoVariables;
  found->second.session->send(std::move(message));
}

void ParameterServer::step_closed(uint64_t step) {
  if (events_.on_step) events_.on_step(step);
}

void ParameterServer::all_complete() {
  if (events_.on_all_complete) events_.on_all_complete();
}

}  // namespace fleet::strategies
