// An asynchronous worker's side of the parameter servers: rounds of gradients that go out and
// values that come back, any number of them under way.
//
// Nothing here blocks. The thread that drives the loop calls everything; ServerClient::idle() and
// on_done tell what is over.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fluid/core/value.h"
#include "strategies/parameter_server/server_client.h"

namespace fleet::strategies {

class AsyncCommunicator final : public ServerClient {
 public:
  AsyncCommunicator(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
                    const transport::Hello& hello,
                    std::function<void(transport::MutableBytes)> random, const Logger& logger = {});

  // For the next round: the gradient of clocks (clock - merged, clock] of a slice. Clocks of a
  // slice begin with 1, and none is left out. `gradient` keeps its memory alive, and the memory
  // stays as it is, until the round is over.
  void push(RemoteVariable slice, uint64_t clock, uint32_t merged,
            const transport::Payload& gradient);
  // The same of rows, which rise and occur once each.
  void push_rows(RemoteVariable slice, uint64_t clock, uint32_t merged,
                 const fluid::SelectedRows& gradient);
  // For the next round: where a value goes, and where its version (updates so far) when that is
  // wanted. Both are written until the round is over.
  void receive(RemoteVariable variable, std::byte* memory, uint64_t bytes,
               uint64_t* version = nullptr);
  // Sends the round: one request to each server and lane that takes part, values behind the
  // gradients. Values are those that every worker still training had a part in up to clock
  // `clock` (0: as they are). `on_done` runs once, with the first failure; at once, inside the
  // call, when there is nothing to do.
  void exchange(uint64_t clock, transport::DoneHandler on_done);

  // Rounds that are not over.
  size_t rounds() const { return rounds_; }

 private:
  struct Target {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    uint64_t* version = nullptr;
    std::vector<bool> received;  // by piece
  };
  struct Lane {
    std::vector<transport::Message> pushes;
    std::vector<uint32_t> wanted;
    std::unordered_map<uint32_t, Target> targets;
    bool idle() const { return pushes.empty() && wanted.empty(); }
  };
  struct Round {
    size_t requests = 0;
    Status status;
    transport::DoneHandler on_done;
  };

  Lane& lane_of(RemoteVariable variable) {
    return lanes_[variable.server * config_.data_lanes + variable.variable % config_.data_lanes];
  }
  void gather(RemoteVariable slice, uint64_t clock, uint32_t merged,
              const transport::Payload& gradient, const uint64_t* rows);
  void on_catalogue(uint32_t server) override;
  uint64_t rows_step() const override { return 0; }  // as they are
  void send(uint32_t server, uint32_t index, uint64_t clock, const std::shared_ptr<Round>& round);
  transport::Message get_message(uint32_t server, uint32_t index, uint64_t clock);
  void finish_request(const std::shared_ptr<Round>& round, const Status& status);

  std::vector<Lane> lanes_;        // of the round that is being put together
  std::vector<uint32_t> trained_;  // slices that travel on each lane
  size_t rounds_ = 0;
};

}  // namespace fleet::strategies
