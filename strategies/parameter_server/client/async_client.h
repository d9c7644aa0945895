// An asynchronous worker's side of the parameter servers: what it sends and receives, and when.
// Bounded queues of gradients that are merged and sent, and values that come back, in rounds of
// which any number are under way.
//
// A state machine without threads: the thread that drives the loop calls everything. The workers of
// real processes put threads around it (worker/background_client.h), a simulated world drives it as
// it is.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/client/merged_gradients.h"
#include "strategies/parameter_server/client/remote_tensor.h"
#include "strategies/parameter_server/client/request_group.h"
#include "strategies/parameter_server/client/server_client.h"

namespace fleet::strategies {

// Whole variables as the servers had them, by their numbers: those that were known when they were
// asked for. Nobody writes to them.
using SharedValues = std::shared_ptr<const std::vector<fluid::Tensor>>;

class AsyncClient final : public ServerClient {
 public:
  struct Events {
    // A queued gradient has left its queue.
    std::function<void(uint32_t gradient)> on_room;
    // Values have come; only when they are newer than those before.
    std::function<void(const SharedValues&)> on_values;
    // A round failed; status() says how.
    std::function<void()> on_failure;
  };

  AsyncClient(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
              const transport::Hello& hello,
              const std::function<void(transport::MutableBytes)>& random,
              const Logger& logger = {});
  // Once, before anything is sent.
  void work_by(const AsyncOptions& options, Events events);

  // Before their first use; others may be under way. The number is that of the gradient (value) of
  // the same place where there is one: programs share it. Gradients may have slices in common, and
  // values too.
  uint32_t add_gradient(RemoteTensor gradient);
  uint32_t add_value(RemoteTensor value);
  size_t gradients() const { return gradients_.size(); }

  // Queues a gradient; the memory is the client's from here on. At most send_queue_size of one may
  // be queued.
  void enqueue(uint32_t gradient, QueuedGradient queued);
  // Sends what is queued, as far as earlier gradients of the same kind have arrived; asks for
  // values when enough has been sent. Goes on by itself until the queues are empty.
  void pump();
  // Sends all that is queued and asks for values behind it, which hold what was sent: one round
  // trip. With a staleness bound they come when the slowest worker is near enough. `on_done`, here
  // and below, runs once, with the first failure; inside the call when there is nothing to do.
  void synchronize(transport::DoneHandler on_done);
  // Asks for values as they are.
  void fetch(transport::DoneHandler on_done) { receive_values(false, std::move(on_done)); }
  // The same of single variables, into memory that is written until the end.
  void receive(std::span<const RemoteMemory> values, transport::DoneHandler on_done);

  // Runs once, as soon as everything that is queued now has arrived; values may still be asked for.
  void when_drained(std::function<void()> then);

 private:
  // Pushes of one gradient that may be under way: one travels while the next one is applied.
  static constexpr uint32_t kWindow = 2;

  struct Gradient {
    RemoteTensor place;
    std::deque<QueuedGradient> waiting;
    uint32_t under_way = 0;
    uint64_t sent = 0;  // since values were asked for
  };
  struct PartOfValue {
    uint32_t value = 0;
    uint32_t part = 0;
    bool operator==(const PartOfValue&) const = default;
  };
  struct Copy {
    PartOfValue from;
    PartOfValue to;
  };
  struct Value {
    RemoteTensor place;
    std::vector<fluid::Tensor> spares;  // those that nobody else holds are free
  };
  struct Received {
    uint64_t number = 0;  // of the round; a larger one is newer
    std::vector<fluid::Tensor> tensors;
  };
  struct Target {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    std::vector<bool> received;  // by piece
  };
  struct Gets {
    std::vector<uint32_t> variables;
    std::unordered_map<uint32_t, Target> targets;
  };
  struct Lane {
    std::vector<transport::Message> pushes;
    // By clock. The server answers once every worker that still trains has reached this clock in
    // the slice. 0: at once.
    std::map<uint64_t, Gets> gets;
    bool takes_part() const { return !pushes.empty() || !gets.empty(); }
  };

  Lane& lane_at(RemoteVariable variable) {
    return lanes_[variable.server * config_.data_lanes + lane_of(variable)];
  }
  void on_parameter_index(uint32_t) override {}
  uint64_t rows_step() const override { return 0; }  // as they are

  // What the next round is to have.
  void merge_and_push(Gradient& gradient, uint32_t number);
  void push_merged(const RemoteTensor& place, std::vector<QueuedGradient> taken);
  void push(RemoteVariable slice, uint32_t merged, const transport::Payload& gradient,
            const uint64_t* rows);
  void want(RemoteVariable variable, std::byte* memory, uint64_t bytes, uint64_t clock);
  std::shared_ptr<Received> want_values(bool bounded);
  uint64_t gate(RemoteVariable slice) const;
  bool fetch_is_due() const;
  fluid::Tensor spare_for(Value& value);

  void receive_values(bool bounded, transport::DoneHandler on_done);
  void copy_common_parts(Received& received) const;
  void take_values(const std::shared_ptr<Received>& received);

  void exchange(transport::DoneHandler on_done);
  void send(uint32_t server, uint32_t index, RequestGroup& round);
  void submit_get(uint32_t server, uint32_t index, transport::Request request, Gets gets,
                  transport::DoneHandler on_done);
  void end_round(const transport::DoneHandler& on_done, const Status& status);
  // Nothing is queued or under way.
  bool drained() const { return queued_ == 0 && rounds_ == 0; }
  void tell_drained(const Status& status);

  AsyncOptions options_;
  Events events_;
  std::vector<Gradient> gradients_;
  std::vector<Value> values_;
  size_t queued_ = 0;  // gradients, over all queues
  // Gradients of a slice that were sent, merged ones counted each.
  std::map<RemoteVariable, uint64_t> clocks_;
  // Whose part of a variable is asked for, and the other values that the same part is in.
  std::map<RemoteVariable, PartOfValue> asked_;
  std::vector<Copy> copies_;
  std::vector<Lane> lanes_;  // of the round that is being put together
  size_t rounds_ = 0;        // that are not over
  bool fetching_ = false;
  uint64_t next_number_ = 1;
  uint64_t newest_ = 0;
  std::function<void()> when_drained_;
};

}  // namespace fleet::strategies
