#include "transport/rpc/client.h"

#include <algorithm>

#include "base/strings.h"

namespace fleet::transport {

Client::Client(Loop& loop, Network& network, ClientOptions options, const Logger& logger)
    : options_(std::move(options)) {
  for (uint32_t server = 0; server < servers(); ++server) {
    for (uint32_t lane = 0; lane < options_.lanes + options_.more_lanes; ++lane) {
      ChannelOptions channel;
      channel.endpoint = options_.servers[server];
      channel.hello = options_.hello;
      channel.hello.lane = options_.lane;
      channel.hello.lane_index = lane;
      channel.hello.callee = MemberId{PeerRole::kServer, server};
      channel.secret = options_.secret;
      channel.limits = options_.limits;
      channel.send_buffer = options_.send_buffer;
      channel.rpc_deadline = options_.rpc_deadline;
      channel.handshake_timeout = options_.handshake_timeout;
      channel.random = options_.random;
      channel.tell_unreachable = lane == 0;
      channels_.push_back(
          std::make_unique<Channel>(loop, network, std::move(channel), ChannelEvents{}, logger));
    }
  }
}

void Client::start() {
  for (uint32_t server = 0; server < servers(); ++server) {
    for (uint32_t lane = 0; lane < options_.lanes; ++lane) channel(server, lane).start();
  }
}

Channel& Client::channel(uint32_t server, uint32_t lane) {
  const uint32_t lanes = options_.lanes + options_.more_lanes;
  if (server >= servers() || lane >= lanes) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "there is no such lane",
                 .where = "transport client",
                 .expected = str_cat("server below ", servers(), ", lane below ", lanes),
                 .got = str_cat("server ", server, ", lane ", lane),
                 .fix = {}});
  }
  return *channels_[size_t{server} * lanes + lane];
}

uint64_t Client::submit(uint32_t server, uint32_t lane, Request request) {
  Channel& used = channel(server, lane);
  if (lane >= options_.lanes) used.start();
  return used.submit(std::move(request));
}

bool Client::all_open() const {
  const uint32_t lanes = options_.lanes + options_.more_lanes;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (i % lanes < options_.lanes && !channels_[i]->open()) return false;
  }
  return true;
}

size_t Client::pending() const {
  size_t count = 0;
  for (const auto& channel : channels_) count += channel->pending();
  return count;
}

std::vector<std::string> Client::waits() const {
  std::vector<std::string> lines;
  for (const auto& channel : channels_) {
    for (std::string& line : channel->waits()) lines.push_back(std::move(line));
  }
  return lines;
}

void Client::fail_all(const Status& why) {
  for (const auto& channel : channels_) channel->fail_all(why);
}

void Client::finish() {
  for (const auto& channel : channels_) channel->finish();
}

DoneHandler PendingRequests::track(DoneHandler then) {
  ++count_;
  if (!then) return [this](const Status& status) { count_down(status); };
  return [this, then = std::move(then)](const Status& status) {
    then(status);
    count_down(status);
  };
}

void PendingRequests::count_down(const Status& status) {
  if (!status.ok() && status_.ok()) status_ = status;
  --count_;
}

Status wait(DrivenLoop& loop, const PendingRequests& requests) {
  if (loop.run_until([&requests] { return requests.done(); }, TimePoint::max())) {
    return requests.status();
  }
  return Status(ErrorCode::kCancelled, {.what = "the wait for a server was given up",
                                        .where = "transport client",
                                        .expected = {},
                                        .got = "a loop that was stopped",
                                        .fix = {}});
}

}  // namespace fleet::transport
