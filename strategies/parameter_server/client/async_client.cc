#include "strategies/parameter_server/client/async_client.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/protocol/row_payload.h"

namespace fleet::strategies {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::Message;
using transport::MutableBytes;
using transport::PayloadTarget;
using transport::Request;
using transport::Verb;

}  // namespace

AsyncClient::AsyncClient(Loop& loop, transport::Network& network,
                         const ParameterServerConfig& config, const transport::Hello& hello,
                         std::function<void(MutableBytes)> random, const Logger& logger)
    : ServerClient(loop, network, config, hello, std::move(random), logger),
      lanes_(size_t{config.server_num()} * config.data_lanes),
      trained_(lanes_.size()) {}

void AsyncClient::on_parameter_index(uint32_t server) {
  for (uint32_t i = 0; i < parameter_index(server).trained; ++i) {
    ++trained_[server * config_.data_lanes + i % config_.data_lanes];
  }
}

void AsyncClient::push(RemoteVariable slice, uint64_t clock, uint32_t merged,
                       const transport::Payload& gradient) {
  check_value_bytes(slice, gradient.size, "send");
  gather(slice, clock, merged, gradient, nullptr);
}

void AsyncClient::push_rows(RemoteVariable slice, uint64_t clock, uint32_t merged,
                            const fluid::SelectedRows& gradient) {
  const uint64_t count = gradient.rows.size();
  gather(slice, clock, merged, transport::Payload(row_payload(gradient)), &count);
}

void AsyncClient::gather(RemoteVariable slice, uint64_t clock, uint32_t merged,
                         const transport::Payload& gradient, const uint64_t* rows) {
  Lane& lane = lane_of(slice);
  const uint32_t pieces = std::max(1U, pieces_of(gradient.size));
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    Message& message = lane.pushes.emplace_back();
    message.header.verb = Verb::kPush;
    message.header.flags = transport::kFlagMore;
    message.header.step = clock;
    message.header.shard_end = merged;
    message.header.variable = slice.variable;
    message.header.piece = piece;
    if (rows != nullptr) {
      message.header.flags |= kFlagRows;
      message.control = encode(*rows);
    }
    if (gradient.size > 0) {
      message.payload = {gradient.data + piece_offset(piece), piece_bytes(gradient.size, piece),
                         gradient.owner};
    }
  }
  step_ = std::max(step_, clock);
}

void AsyncClient::receive(RemoteVariable variable, std::byte* memory, uint64_t bytes,
                          WantedValue wanted) {
  check_value_bytes(variable, bytes, "recv");
  Gets& gets = lane_of(variable).gets[wanted.clock];
  Target& target = gets.targets[variable.variable];
  if (target.received.empty()) gets.variables.push_back(variable.variable);
  target.memory = memory;
  target.bytes = bytes;
  target.version = wanted.version;
  target.received.assign(std::max(1U, pieces_of(bytes)), bytes == 0);
}

void AsyncClient::exchange(transport::DoneHandler on_done) {
  auto round = std::make_shared<Round>();
  round->on_done = std::move(on_done);
  for (const Lane& lane : lanes_) {
    if (!lane.idle()) round->requests += std::max<size_t>(1, lane.gets.size());
  }
  if (round->requests == 0) {
    if (round->on_done) round->on_done(status());
    return;
  }
  ++rounds_;
  for (uint32_t server = 0; server < config_.server_num(); ++server) {
    for (uint32_t k = 0; k < config_.data_lanes; ++k) send(server, k, round);
  }
}

Message AsyncClient::get_message(uint32_t server, uint32_t index, uint64_t clock,
                                 const std::vector<uint32_t>& wanted) const {
  Message message;
  message.header.verb = Verb::kGet;
  message.header.step = clock;
  const uint32_t trained = parameter_index(server).trained;
  const bool all = wanted.size() == trained_[server * config_.data_lanes + index] &&
                   std::all_of(wanted.begin(), wanted.end(),
                               [trained](uint32_t variable) { return variable < trained; });
  if (all) {
    message.header.variable = kAllVariables;
  } else if (wanted.size() == 1) {
    message.header.variable = wanted.front();
  } else {
    message.header.variable = kListedVariables;
    message.control = encode(wanted);
  }
  return message;
}

void AsyncClient::send(uint32_t server, uint32_t index, const std::shared_ptr<Round>& round) {
  Lane lane = std::exchange(lanes_[server * config_.data_lanes + index], {});
  Request request;
  request.frames = std::move(lane.pushes);
  if (lane.gets.empty() && !request.frames.empty()) {
    request.frames.back().header.flags &= ~transport::kFlagMore;
    request.on_done = [this, round](const Status& status) { finish_request(round, status); };
    return submit(server, index, std::move(request));
  }
  for (auto& [clock, gets] : lane.gets) {
    request.frames.push_back(get_message(server, index, clock, gets.variables));
    submit_get(server, index, std::exchange(request, {}), std::move(gets), round);
  }
}

// The request's last frame asks for what is wanted.
void AsyncClient::submit_get(uint32_t server, uint32_t index, Request request, Gets gets,
                             const std::shared_ptr<Round>& round) {
  const auto targets =
      std::make_shared<std::unordered_map<uint32_t, Target>>(std::move(gets.targets));
  request.reply_target = [server, targets](const FrameHeader& header, ConstBytes) {
    const auto found = targets->find(header.variable);
    if (found != targets->end()) {
      const Target& target = found->second;
      if (header.piece < pieces_of(target.bytes) &&
          header.payload_bytes == piece_bytes(target.bytes, header.piece)) {
        return PayloadTarget::into(
            {target.memory + piece_offset(header.piece), header.payload_bytes});
      }
    }
    return refuse_value(server, header);
  };
  request.on_reply = [targets](const FrameHeader& header, ConstBytes, MutableBytes payload) {
    if (payload.empty()) return;
    Target& target = targets->find(header.variable)->second;
    target.received[header.piece] = true;
    if (target.version != nullptr) *target.version = header.step;
  };
  request.on_done = [this, server, targets, round](const Status& status) {
    Status outcome = status;
    for (const auto& [variable, target] : *targets) {
      const auto missing = std::count(target.received.begin(), target.received.end(), false);
      if (!outcome.ok() || missing == 0) continue;
      outcome = {ErrorCode::kInternal,
                 {.what = "an answer ended before all of its values had come",
                  .where = str_cat("server ", server, ", variable ", variable),
                  .expected = "every piece of every value",
                  .got = str_cat(missing, " pieces are missing"),
                  .fix = "run the same version in every process"}};
      fail(outcome);
    }
    finish_request(round, outcome);
  };
  submit(server, index, std::move(request));
}

void AsyncClient::finish_request(const std::shared_ptr<Round>& round, const Status& status) {
  if (round->status.ok()) round->status = status;
  if (--round->requests > 0) return;
  --rounds_;
  if (round->on_done) round->on_done(round->status);
}

}  // namespace fleet::strategies
