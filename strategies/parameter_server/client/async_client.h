// An asynchronous worker's side of the parameter servers: rounds of gradients that go out and
// values that come back, any number of them under way.
//
// Nothing here blocks. The thread that drives the loop calls everything; ServerClient::idle() and
// on_done tell what is over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fluid/core/value.h"
#include "strategies/parameter_server/client/server_client.h"

namespace fleet::strategies {

// How a value is wanted.
struct WantedValue {
  // With the part of every worker still training up to this clock of the slice; 0: as it is.
  uint64_t clock = 0;
  uint64_t* version = nullptr;  // where updates so far go
};

class AsyncClient final : public ServerClient {
 public:
  AsyncClient(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
              const transport::Hello& hello, std::function<void(transport::MutableBytes)> random,
              const Logger& logger = {});

  // For the next round: one gradient that stands for those of a slice with the clocks
  // clock - merged + 1 to clock. Clocks of a slice count from 1, without a gap from one push to the
  // next. `gradient` owns its memory, which nobody may write to until the round is over.
  void push(RemoteVariable slice, uint64_t clock, uint32_t merged,
            const transport::Payload& gradient);
  // The same of rows, whose numbers are strictly ascending.
  void push_rows(RemoteVariable slice, uint64_t clock, uint32_t merged,
                 const fluid::SelectedRows& gradient);
  // For the next round, once for each variable: where its value goes. Memory and version are
  // written until the round is over.
  void receive(RemoteVariable variable, std::byte* memory, uint64_t bytes, WantedValue wanted = {});
  // Sends the round: a request for each clock to every server and lane that takes part, values
  // behind the gradients. `on_done` runs once, with the first failure; at once, inside the call,
  // when there is nothing to do.
  void exchange(transport::DoneHandler on_done);

  // Rounds that are not over.
  size_t rounds() const { return rounds_; }

 private:
  struct Target {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    uint64_t* version = nullptr;
    std::vector<bool> received;  // by piece
  };
  struct Gets {
    std::vector<uint32_t> variables;
    std::unordered_map<uint32_t, Target> targets;
  };
  struct Lane {
    std::vector<transport::Message> pushes;
    std::map<uint64_t, Gets> gets;  // by clock
    bool idle() const { return pushes.empty() && gets.empty(); }
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
  void on_parameter_index(uint32_t server) override;
  uint64_t rows_step() const override { return 0; }  // as they are
  void send(uint32_t server, uint32_t index, const std::shared_ptr<Round>& round);
  void submit_get(uint32_t server, uint32_t index, transport::Request request, Gets gets,
                  const std::shared_ptr<Round>& round);
  transport::Message get_message(uint32_t server, uint32_t index, uint64_t clock,
                                 const std::vector<uint32_t>& wanted) const;
  void finish_request(const std::shared_ptr<Round>& round, const Status& status);

  std::vector<Lane> lanes_;        // of the round that is being put together
  std::vector<uint32_t> trained_;  // slices that travel on each lane
  size_t rounds_ = 0;
};

}  // namespace fleet::strategies
