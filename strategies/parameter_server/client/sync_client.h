// A worker's side of the parameter servers: gradients go out while the backward pass runs, one
// round trip per server ends the step, values come back into the tensors.
//
// Nothing here blocks. The thread that drives the loop calls everything; to wait, it drives the
// loop until idle() (strategies/parameter_server/client/sync_worker_node.h).
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "strategies/parameter_server/client/server_client.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/protocol/partial_row_sum.h"
#include "strategies/parameter_server/protocol/partial_sum.h"
#include "strategies/parameter_server/protocol/wire.h"

namespace fleet::strategies {

class SyncClient final : public ServerClient {
 public:
  SyncClient(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
             const transport::Hello& hello, std::function<void(transport::MutableBytes)> random,
             const Logger& logger = {});

  // The gradient of one logical shard of this worker, for the next step. Shards come in order.
  // The memory must stay as it is until the step is over, or settled().
  void push(RemoteVariable slice, int shard, const std::byte* gradient, uint64_t bytes);
  // The same of a gradient of rows, which may occur several times and in any order. Its memory is
  // free at once.
  void push_rows(RemoteVariable slice, int shard, const fluid::SelectedRows& gradient);
  // Where the value goes that the next finish_step or fetch asks for. The memory is written until
  // the client is idle.
  void receive(RemoteVariable variable, std::byte* memory, uint64_t bytes);
  // Everything of the step was pushed: sends what is left, the barriers, and the gets of what was
  // registered; the step is over when idle. Every server takes part.
  void finish_step();
  // Asks for what was registered as it is after the steps so far.
  void fetch();
  // Sends gathered gradients now, so that their memory is free once the client is idle.
  void flush();
  // No push is gathered or under way.
  bool settled() const { return idle() && gathered_ == 0; }

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
    uint64_t pushed_bytes = 0;
    std::vector<Target> targets;
    std::vector<std::unique_ptr<PartialSums>> sums;
    std::vector<std::unique_ptr<PartialRowSums>> row_sums;
    std::vector<Lane> lanes;
  };

  Lane& lane_of(RemoteVariable variable) {
    return servers_[variable.server].lanes[variable.variable % config_.data_lanes];
  }
  void on_catalogue(uint32_t server) override;
  void before_idle() override;
  // `rows`: how many the sum has, when it is of rows.
  void gather(RemoteVariable slice, ShardRange node, const transport::Payload& sum, uint32_t pieces,
              const uint64_t* rows);
  void send_gathered(uint32_t server, uint32_t lane);
  transport::Message get_message(uint32_t server, uint32_t lane, uint64_t step) const;
  void ask_apart(uint32_t server);
  // Asks for what is wanted, which is forgotten then.
  void exchange(uint32_t server, uint32_t lane, std::vector<transport::Message> frames,
                std::vector<uint32_t>& wanted);
  transport::PayloadTarget target_of(uint32_t server, const transport::FrameHeader& header);
  void on_value(uint32_t server, const transport::FrameHeader& header);

  std::vector<ShardRange> nodes_;
  std::vector<Server> servers_;
  size_t gathered_ = 0;  // frames, over all lanes
  bool stepping_ = false;
  uint64_t exchange_ = 0;
  uint64_t values_missing_ = 0;
};

}  // namespace fleet::strategies
