#include "strategies/parameter_server/protocol/server_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"

namespace fleet::strategies {
namespace {

using transport::FrameHeader;
using transport::Message;
using transport::MutableBytes;
using transport::PayloadTarget;

Status bad_part(std::string what, std::string expected, std::string got) {
  return bad_frame(std::move(what), std::move(expected), std::move(got),
                   "exchange between servers");
}

}  // namespace

ServerExchange::ServerExchange(uint32_t self, uint32_t servers, std::vector<StepExchange> exchanges,
                               Send send)
    : self_(self), servers_(servers), exchanges_(std::move(exchanges)), send_(std::move(send)) {
  for (uint32_t i = 0; i < count(); ++i) {
    const auto& parts = exchanges_[i].parts;
    for (uint32_t k = 0; k < parts.size(); ++k) {
      places_.push_back({i, k});
      arrived_.emplace_back(pieces_of(parts[k].bytes));
    }
  }
  next_step();
}

void ServerExchange::next_step() {
  missing_.assign(exchanges_.size(), 0);
  for (size_t i = 0; i < places_.size(); ++i) {
    arrived_[i].assign(arrived_[i].size(), false);
    if (part_of(places_[i]).server != self_) missing_[places_[i].exchange] += arrived_[i].size();
  }
}

Status ServerExchange::check(uint32_t server, const FrameHeader& header, uint64_t step) const {
  if (header.variable >= places_.size() || header.piece >= arrived_[header.variable].size()) {
    return bad_part(str_cat("server ", server, " sends a part of no exchange"),
                    str_cat("one of ", places_.size(), " parts"),
                    str_cat("part ", header.variable, ", piece ", header.piece));
  }
  const ExchangePart& part = part_of(places_[header.variable]);
  if (part.server != server) {
    return bad_part(str_cat("a part of '", part.name, "' comes from the wrong server"),
                    str_cat("server ", part.server), str_cat("server ", server));
  }
  if (header.payload_bytes != piece_bytes(part.bytes, header.piece)) {
    return bad_part(str_cat("a part of '", part.name, "' has the wrong size"),
                    str_cat(piece_bytes(part.bytes, header.piece), " bytes"),
                    str_cat(header.payload_bytes, " bytes"));
  }
  if (header.step == 0 || header.step > step) {
    return bad_part(str_cat("a part of '", part.name, "' is ahead of this server"),
                    str_cat("step ", step, " at most"), str_cat("step ", header.step));
  }
  return {};
}

bool ServerExchange::known(const FrameHeader& header, uint64_t step) const {
  return header.step < step || arrived_[header.variable][header.piece];
}

PayloadTarget ServerExchange::prepare(uint32_t server, uint64_t session, const FrameHeader& header,
                                      uint64_t step) {
  Status status = check(server, header, step);
  if (!status.ok()) return PayloadTarget::refuse(std::move(status));
  if (known(header, step)) return PayloadTarget::discard();
  // Memory of the connection's own: a connection that was replaced may still be writing.
  Buffer& buffer = receiving_[session];
  if (buffer.size() != header.payload_bytes || !buffer.unique()) {
    buffer = Buffer(header.payload_bytes);
  }
  return PayloadTarget::into({buffer.data(), buffer.size()}, buffer.owner());
}

Status ServerExchange::take(uint32_t server, uint64_t session, const FrameHeader& header,
                            MutableBytes payload, uint64_t step) {
  Status status = check(server, header, step);
  if (!status.ok()) return status;
  const auto buffer = receiving_.find(session);
  const bool received =
      buffer != receiving_.end() && !payload.empty() && payload.data() == buffer->second.data();
  if (!received || known(header, step)) return {};
  const Place& place = places_[header.variable];
  const MutableBytes whole = exchanges_[place.exchange].place(place.part);
  std::memcpy(whole.data() + piece_offset(header.piece), payload.data(), payload.size());
  arrived_[header.variable][header.piece] = true;
  --missing_[place.exchange];
  return {};
}

void ServerExchange::begin(uint32_t exchange, uint64_t step) {
  // Every server sends its parts to every other one, and all put them in the same places: each then
  // computes the same numbers from the same bytes, and none has to send a result. Parts of others
  // may have come before this call, for they finish their stages on their own.
  std::vector<Message> frames;
  for (uint32_t number = 0; number < places_.size(); ++number) {
    if (places_[number].exchange != exchange) continue;
    const ExchangePart& part = part_of(places_[number]);
    if (part.server != self_ || part.bytes == 0) continue;
    const fluid::Tensor made = exchanges_[exchange].made(places_[number].part);
    const MutableBytes whole = exchanges_[exchange].place(places_[number].part);
    if (made.raw() != whole.data()) std::memcpy(whole.data(), made.raw(), part.bytes);
    for (uint32_t piece = 0; piece < pieces_of(part.bytes); ++piece) {
      Message& message = frames.emplace_back();
      message.header.verb = transport::Verb::kPush;
      message.header.flags = transport::kFlagMore;
      message.header.step = step;
      message.header.variable = number;
      message.header.piece = piece;
      message.payload = {made.raw() + piece_offset(piece), piece_bytes(part.bytes, piece),
                         made.buffer().owner()};
    }
  }
  if (frames.empty()) return;
  frames.back().header.flags = 0;
  for (uint32_t server = 0; server < servers_; ++server) {
    if (server != self_) send_(server, frames);
  }
}

std::vector<uint32_t> ServerExchange::missing(uint32_t exchange) const {
  std::vector<uint32_t> servers;
  for (size_t i = 0; i < places_.size(); ++i) {
    const ExchangePart& part = part_of(places_[i]);
    if (places_[i].exchange != exchange || part.server == self_) continue;
    const bool all = std::find(arrived_[i].begin(), arrived_[i].end(), false) == arrived_[i].end();
    if (!all) servers.push_back(part.server);
  }
  std::sort(servers.begin(), servers.end());
  servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
  return servers;
}

}  // namespace fleet::strategies
