// A worker's side of the parameter servers: gradients go out while the backward pass runs, one
// round trip per server ends the step, values come back into the tensors.
//
// Nothing here blocks. The thread that drives the loop calls everything; to wait, it drives the
// loop until idle() (strategies/parameter_server/worker_node.h).
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/partial_sum.h"
#include "strategies/parameter_server/wire.h"
#include "transport/rpc/client.h"

namespace fleet::strategies {

// A variable on a server: an entry of that server's catalogue.
struct RemoteVariable {
  uint32_t server = 0;
  uint32_t variable = 0;
  bool operator==(const RemoteVariable&) const = default;
};

class Communicator {
 public:
  Communicator(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
               const transport::Hello& hello, std::function<void(transport::MutableBytes)> random,
               Logger logger = {});

  // Begins to connect and asks every server for its catalogue; servers may come later.
  void start();
  // Every catalogue is here.
  bool ready() const { return catalogues_missing_ == 0; }
  const Catalogue& catalogue(uint32_t server) const { return catalogues_[server]; }
  // By name in a server's catalogue: the variable itself, or the slice with that gradient. Throws
  // UsageError that names the server when it is not there.
  RemoteVariable find(uint32_t server, std::string_view name) const;
  RemoteVariable find_gradient(uint32_t server, std::string_view gradient) const;

  // The gradient of one logical shard of this worker, for the next step. Shards come in order.
  // The memory must stay as it is until the step is over, or settled().
  void push(RemoteVariable slice, int shard, const std::byte* gradient, uint64_t bytes);
  // Where the value goes that the next finish_step or fetch asks for. The memory is written until
  // the communicator is idle.
  void receive(RemoteVariable variable, std::byte* memory, uint64_t bytes);
  // Everything of the step was pushed: sends what is left, the barriers, and the gets of what was
  // registered; the step is over when idle. Every server takes part.
  void finish_step();
  // Asks for what was registered as it is after the steps so far.
  void fetch();
  // Sends gathered gradients now, so that their memory is free once the communicator is idle.
  void flush();
  // Gives a variable its initial value; only before any worker's first step.
  void assign(RemoteVariable variable, const std::byte* value, uint64_t bytes);
  // This worker contributes no more.
  void complete();
  // Disconnects in good order once idle.
  void finish() { client_.finish(); }

  // Nothing is under way; status() says how it went.
  bool idle() const { return under_way_ == 0; }
  // No push is gathered or under way.
  bool settled() const { return idle() && gathered_ == 0; }
  // The first failure; it stays.
  const Status& status() const { return status_; }
  // Called whenever the communicator turns idle. May begin new work.
  void set_on_idle(std::function<void()> on_idle) { on_idle_ = std::move(on_idle); }
  // Everything under way, and whatever is asked later, ends with this status.
  void fail_all(const Status& why) { client_.fail_all(why); }
  // Steps that are over.
  uint64_t step() const { return step_; }
  // Servers with requests under way, for messages.
  std::vector<uint32_t> waiting_for() const;
  const ParameterServerConfig& config() const { return config_; }

 private:
  struct Target {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    std::vector<uint64_t> received;  // by piece: the exchange that filled it
  };
  struct Lane {
    std::vector<transport::Message> gathered;
    size_t bytes = 0;
    std::vector<uint32_t> wanted;
    uint32_t trained = 0;  // slices that travel on it
  };
  struct Server {
    uint32_t pushed = 0;  // pieces of this step
    std::vector<Target> targets;
    std::vector<std::unique_ptr<PartialSums>> sums;
    std::vector<Lane> lanes;
    uint32_t under_way = 0;
  };

  Lane& lane_of(RemoteVariable variable) {
    return servers_[variable.server].lanes[variable.variable % config_.data_lanes];
  }
  void ask_catalogue(uint32_t server);
  void on_catalogue(uint32_t server, Catalogue catalogue);
  void gather(RemoteVariable slice, ShardRange node, const std::byte* sum, uint64_t bytes);
  void send_gathered(uint32_t server, uint32_t lane);
  transport::Message get_message(uint32_t server, uint32_t lane, uint64_t step) const;
  void exchange(uint32_t server, uint32_t lane, std::vector<transport::Message> frames);
  void submit(uint32_t server, uint32_t lane, transport::Request request);
  void turn_idle();
  transport::PayloadTarget target_of(uint32_t server, const transport::FrameHeader& header);
  void on_value(uint32_t server, const transport::FrameHeader& header);
  void check_value_bytes(RemoteVariable variable, uint64_t bytes, std::string_view op) const;

  const ParameterServerConfig config_;
  std::vector<ShardRange> nodes_;
  std::vector<Catalogue> catalogues_;
  std::vector<Server> servers_;
  size_t under_way_ = 0;
  Status status_;
  transport::Client client_;
  std::function<void()> on_idle_;
  uint32_t catalogues_missing_ = 0;
  size_t gathered_ = 0;  // frames, over all lanes
  uint64_t step_ = 0;
  bool stepping_ = false;
  uint64_t exchange_ = 0;
  uint64_t values_missing_ = 0;
};

}  // namespace fleet::strategies
