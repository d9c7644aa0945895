// A worker's side of the parameter servers: gradients go out while the backward pass runs, one
// round trip per server ends the step, values come back into the tensors.
//
// A server lets the pieces of dense gradients in by an order (protocol/send_order.h), as many as
// its memory has room for from all workers, and large sparse gradients one by one
// (protocol/row_window.h). What it has not let in yet is held back here.
//
// Nothing here blocks. The thread that drives the loop calls everything; to wait, it drives the
// loop until idle() (strategies/parameter_server/client/blocking_worker_node.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "strategies/parameter_server/client/server_client.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/protocol/partial_row_sum.h"
#include "strategies/parameter_server/protocol/partial_sum.h"
#include "strategies/parameter_server/protocol/send_order.h"
#include "strategies/parameter_server/protocol/wire.h"

namespace fleet::strategies {

class SyncClient final : public ServerClient {
 public:
  SyncClient(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
             const transport::Hello& hello,
             const std::function<void(transport::MutableBytes)>& random, const Logger& logger = {});

  // The gradient of one logical shard of this worker, for the next step. Shards come in order.
  // The memory must stay as it is until the step is over, or drained().
  void push(RemoteVariable slice, int shard, const std::byte* gradient, uint64_t bytes);
  // The same of a sparse gradient, which may occur several times and in any order. Its memory is
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
  // Sends gathered gradients now, or copies what its server has not let in, so that their memory
  // is free once the client is drained.
  void flush();
  // No push is gathered or under way, and what is held back has memory of its own.
  bool drained() const { return pushing_ == 0 && gathered_ == 0 && borrowed_ == 0; }

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
    SendOrder order;
    uint32_t open_at_begin = 0;                        // pieces of the order
    uint32_t open = 0;                                 // in this step
    std::multimap<uint32_t, transport::Message> held;  // by position in the order
    uint32_t asking = 0;                               // requests for credits under way
    // Of rows, in this step: gradients that the lane takes in a step, and those that were pushed.
    size_t row_gradients = 0;
    size_t rows_pushed = 0;
  };
  struct Server {
    uint32_t pushed = 0;  // pieces of this step
    uint64_t pushed_bytes = 0;
    std::vector<Target> targets;
    std::vector<std::unique_ptr<PartialSums>> sums;
    std::vector<std::unique_ptr<PartialRowSums>> row_sums;
    std::vector<uint64_t> free_row_bytes;  // in this step, by node
    std::vector<Lane> lanes;
  };

  void on_parameter_index(uint32_t server) override;
  void before_idle() override;
  void gather(RemoteVariable slice, ShardRange node, const transport::Payload& sum);
  void gather_rows(RemoteVariable slice, ShardRange node, const fluid::SelectedRows& sum);
  void gather(Lane& lane, transport::Message message);
  void order_lanes(Server& server, const ParameterIndex& known);
  void begin_credits(Server& server, const ParameterIndex& known);
  void pushed(RemoteVariable slice, uint32_t pieces, uint64_t bytes);
  void own_held(Lane& lane);
  void hold(Lane& lane, uint32_t position, transport::Message message);
  void send_gathered(uint32_t server, uint32_t lane);
  // `over`: nothing is pushed any more in this step.
  void ask_credit(uint32_t server, uint32_t lane, bool over);
  void on_credit(uint32_t server, uint32_t lane, uint32_t open);
  void ask_rows(RemoteVariable slice, ShardRange node, uint64_t rows,
                std::vector<transport::Message> held);
  void end_rows(uint32_t server, uint32_t lane);
  void submit_push(uint32_t server, uint32_t lane, transport::Request request);
  void get_separately(uint32_t server);
  // Asks for what is wanted, which is forgotten then.
  void exchange(uint32_t server, uint32_t lane, std::vector<transport::Message> frames,
                std::vector<uint32_t>& wanted);
  void on_value(uint32_t server, const transport::FrameHeader& header);

  std::vector<ShardRange> nodes_;
  std::vector<Server> servers_;
  size_t gathered_ = 0;  // frames, over all lanes
  size_t pushing_ = 0;   // requests with pushes that are under way
  size_t borrowed_ = 0;  // frames held back whose memory is the caller's
  bool stepping_ = false;
  bool over_ = false;  // everything of the step is pushed
  uint64_t exchange_ = 0;
  uint64_t values_missing_ = 0;
};

}  // namespace fleet::strategies
