// What an asynchronous worker sends and receives, and when: bounded queues of gradients that are
// merged and sent, and values that come back. A state machine without threads: the loop's thread
// calls everything. The runtime of real processes (async_worker_runtime.h) puts threads around
// it, a simulated world drives it as it is.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "fluid/core/value.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/client/async_client.h"
#include "strategies/parameter_server/client/remote_tensor.h"

namespace fleet::strategies {

// A gradient on its way: elements, or rows.
struct QueuedGradient {
  Buffer memory;
  std::shared_ptr<const fluid::SelectedRows> rows = nullptr;
};

// Whole variables as the servers had them, in the order of AsyncWorker::values(), as many as were
// known when they were asked for.
struct ReceivedValues {
  uint64_t number = 0;  // of the request; a larger one is newer
  std::vector<fluid::Tensor> tensors;
  std::vector<std::vector<uint64_t>> versions;  // by value and part
};

class AsyncWorker {
 public:
  struct Events {
    // A queued gradient has left its queue.
    std::function<void(uint32_t gradient)> on_room;
    // Values have come; only when they are newer than those before.
    std::function<void(const ReceivedValues&)> on_values;
    // A request failed; the client has the status.
    std::function<void()> on_failure;
  };

  // The client must outlive it.
  AsyncWorker(AsyncClient& client, const AsyncOptions& options, Events events);

  // Before their first use; others may be under way. The number is that of the gradient (value) of
  // the same place where there is one: programs share it. Gradients may have slices in common, and
  // values too.
  uint32_t add_gradient(RemoteTensor gradient);
  uint32_t add_value(RemoteTensor value);
  const std::vector<RemoteTensor>& gradients() const { return gradients_; }
  const std::vector<RemoteTensor>& values() const { return values_; }

  // Queues a gradient; the memory is the worker's from here on. There must be room.
  void enqueue(uint32_t gradient, QueuedGradient queued);
  bool has_room(uint32_t gradient) const {
    return queues_[gradient].waiting.size() < options_.send_queue_size;
  }
  // Sends what is queued, as far as earlier gradients of the same kind have arrived; asks for
  // values when enough has been sent. Goes on by itself until the queues are empty.
  void pump();
  // Sends all that is queued and asks for values behind it, which hold what was sent: one round
  // trip. With a staleness bound they come when the slowest worker is near enough.
  void synchronize(transport::DoneHandler on_done);
  // Asks for values as they are.
  void fetch(transport::DoneHandler on_done);

  // Nothing is queued or under way.
  bool drained() const { return queued_ == 0 && client_.rounds() == 0; }
  // Runs once, as soon as everything that is queued now has arrived; values may still be asked for.
  void when_drained(std::function<void()> then);
  uint64_t pushes() const { return pushes_; }

 private:
  // Pushes of one gradient that may be under way: one travels while the next one is applied.
  static constexpr uint32_t kWindow = 2;

  struct Queue {
    std::deque<QueuedGradient> waiting;
    uint32_t under_way = 0;
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

  void merge_and_push(uint32_t gradient);
  void push_merged(const RemoteTensor& gradient, std::vector<QueuedGradient> taken);
  // With a bound on staleness: as soon as the slowest worker is near enough.
  void want_values(const std::shared_ptr<ReceivedValues>& received, bool bounded);
  void copy_common_parts(ReceivedValues& received) const;
  void take_values(const std::shared_ptr<ReceivedValues>& received);
  fluid::Tensor spare_for(size_t value);
  bool fetch_is_due() const;
  uint64_t gate(RemoteVariable slice) const;
  void round_over(const Status& status);

  AsyncClient& client_;
  const AsyncOptions options_;
  Events events_;
  std::vector<RemoteTensor> gradients_;
  std::vector<RemoteTensor> values_;
  std::vector<Queue> queues_;
  // Gradients of a slice that were sent, merged ones counted each.
  std::map<RemoteVariable, uint64_t> clocks_;
  // Whose part of a variable is asked for, and the other values that the same part is in.
  std::map<RemoteVariable, PartOfValue> asked_;
  std::vector<Copy> copies_;
  std::vector<std::vector<fluid::Tensor>>
      spares_;  // by value; those that nobody else holds are free
  size_t queued_ = 0;
  uint64_t pushes_ = 0;
  std::vector<uint64_t> sent_;  // by gradient, since the last fetch
  bool fetching_ = false;
  uint64_t next_number_ = 1;
  uint64_t newest_ = 0;
  std::function<void()> when_drained_;
};

// The sum of the gradients, or their mean, in the order given; in the memory of the first.
Buffer merge_gradients(std::vector<Buffer> gradients, fluid::DType dtype, bool by_sum);
// The same of rows: the values that dense gradients would give in these rows. The result's are
// ascending.
fluid::SelectedRows merge_rows(const std::vector<QueuedGradient>& gradients, bool by_sum);

}  // namespace fleet::strategies
