// Channels to every server: lanes of one kind. Belongs to the thread that drives its loop;
// the training thread drives the data loop itself while it waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/rpc/channel.h"

namespace fleet::transport {

struct ClientOptions {
  std::vector<Endpoint> servers;  // by server index
  Hello hello;
  Secret secret;
  LaneKind lane = LaneKind::kData;
  uint32_t lanes = 1;  // to each server
  // Lanes behind those, which connect when they are first used.
  uint32_t more_lanes = 0;
  SessionLimits limits;
  size_t send_buffer = 0;  // Link::set_send_buffer; 0: as the system has it
  Duration rpc_deadline = std::chrono::seconds(180);
  Duration handshake_timeout = std::chrono::seconds(10);
  std::function<void(MutableBytes)> random;
};

class Client {
 public:
  Client(Loop& loop, Network& network, ClientOptions options, const Logger& logger = {});

  void start();  // begins to connect to all; servers may come later
  uint64_t submit(uint32_t server, uint32_t lane, Request request);
  Channel& channel(uint32_t server, uint32_t lane = 0);
  uint32_t servers() const { return static_cast<uint32_t>(options_.servers.size()); }
  uint32_t lanes() const { return options_.lanes; }
  bool all_open() const;
  size_t pending() const;
  std::vector<std::string> waits() const;  // of every channel
  // Every request, now and later, ends with this status. From another thread: post it to the loop.
  void fail_all(const Status& why);
  void finish();

 private:
  ClientOptions options_;
  std::vector<std::unique_ptr<Channel>> channels_;  // server by server
};

// Counts requests that are under way and keeps the first failure. Must outlive them.
class PendingRequests {
 public:
  // For Request::on_done. `then` runs first.
  DoneHandler track(DoneHandler then = nullptr);
  bool done() const { return count_ == 0; }
  size_t count() const { return count_; }
  const Status& status() const { return status_; }

 private:
  void count_down(const Status& status);

  size_t count_ = 0;
  Status status_;
};

// Drives the loop in the calling thread until all are done, and returns the first failure. The
// requests' deadlines end it; a loop that was stopped gives kCancelled.
Status wait(DrivenLoop& loop, const PendingRequests& requests);

}  // namespace fleet::transport
