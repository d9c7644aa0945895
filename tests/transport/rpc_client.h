// Requests without a job's client around them: lanes of one kind to every server. Belongs to the
// thread that drives its loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/rpc/channel.h"

namespace fleet::transport::testing {

struct ClientOptions {
  std::vector<Endpoint> servers;  // by server index
  Hello hello;
  Secret secret;
  LaneKind lane = LaneKind::kData;
  uint32_t lanes = 1;  // to each server
  Duration rpc_deadline = std::chrono::seconds(180);
  std::function<void(MutableBytes)> random;
};

class Client {
 public:
  Client(Loop& loop, Network& network, ClientOptions options, const Logger& logger = {})
      : lanes_(options.lanes) {
    for (uint32_t server = 0; server < options.servers.size(); ++server) {
      for (uint32_t lane = 0; lane < lanes_; ++lane) {
        ChannelOptions channel;
        channel.endpoint = options.servers[server];
        channel.hello = options.hello;
        channel.hello.lane = options.lane;
        channel.hello.lane_index = lane;
        channel.hello.callee = MemberId{PeerRole::kServer, server};
        channel.secret = options.secret;
        channel.rpc_deadline = options.rpc_deadline;
        channel.random = options.random;
        channel.tell_unreachable = lane == 0;
        channels_.push_back(
            std::make_unique<Channel>(loop, network, std::move(channel), ChannelEvents{}, logger));
      }
    }
  }

  void start() {  // begins to connect to all; servers may come later
    for (const auto& channel : channels_) channel->start();
  }
  Channel& channel(uint32_t server, uint32_t lane = 0) {
    return *channels_.at(size_t{server} * lanes_ + lane);
  }
  uint64_t submit(uint32_t server, uint32_t lane, Request request) {
    return channel(server, lane).submit(std::move(request));
  }
  bool all_open() const {
    return std::all_of(channels_.begin(), channels_.end(),
                       [](const auto& channel) { return channel->open(); });
  }
  std::vector<std::string> waits() const {  // of every channel
    std::vector<std::string> lines;
    for (const auto& channel : channels_) {
      for (std::string& line : channel->waits()) lines.push_back(std::move(line));
    }
    return lines;
  }
  // Every request, now and later, ends with this status.
  void fail_all(const Status& why) {
    for (const auto& channel : channels_) channel->fail_all(why);
  }
  void finish() {
    for (const auto& channel : channels_) channel->finish();
  }

 private:
  uint32_t lanes_;
  std::vector<std::unique_ptr<Channel>> channels_;  // server by server
};

// Counts requests that are under way and keeps the first failure. Must outlive them.
class PendingRequests {
 public:
  // For Request::on_done.
  DoneHandler track() {
    ++count_;
    return [this](const Status& status) {
      if (!status.ok() && status_.ok()) status_ = status;
      --count_;
    };
  }
  bool done() const { return count_ == 0; }
  const Status& status() const { return status_; }

 private:
  size_t count_ = 0;
  Status status_;
};

// Drives the loop in the calling thread until all are done, and returns the first failure.
inline Status wait(DrivenLoop& loop, const PendingRequests& requests) {
  loop.run_until([&requests] { return requests.done(); }, TimePoint::max());
  return requests.status();
}

}  // namespace fleet::transport::testing
