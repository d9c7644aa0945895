// A double of NCCL and of a device's stream: streams are threads, messages go through memory or
// files, and tests say what goes wrong. Ranks are threads, or processes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/nccl/fake_messages.h"
#include "transport/nccl/device_queue.h"
#include "transport/nccl/nccl.h"

namespace fleet::transport::testing {

// Makes the memory that a stream's work touches its own, until what it returns is gone.
using TakeMemory = std::function<std::shared_ptr<const void>()>;

// Runs what is put on it, in order.
class FakeStream {
 public:
  explicit FakeStream(TakeMemory take);
  ~FakeStream();
  uint64_t put(std::function<void()> work);  // its number
  bool is_done(uint64_t number) const { return done_.load() >= number; }
  void wait(uint64_t number) const;

 private:
  void run();

  TakeMemory take_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t put_ = 0;
  std::atomic<uint64_t> done_{0};
  bool ends_ = false;
  std::thread thread_;
};

class FakeQueue : public DeviceQueue {
 public:
  // Of memory that `allocator` gives, which must outlive the buffers. `compute` is what the device
  // does of what the calling thread has put on it; on the stream.
  explicit FakeQueue(Allocator& allocator = host_allocator(), TakeMemory take = nullptr,
                     std::function<void()> compute = nullptr)
      : allocator_(allocator),
        stream_(std::make_shared<FakeStream>(std::move(take))),
        compute_(std::move(compute)) {}
  // What the calling thread puts on the device is put on another stream, which outlives this.
  explicit FakeQueue(std::shared_ptr<FakeStream> compute_stream) : FakeQueue() {
    compute_stream_ = std::move(compute_stream);
  }

  void* stream() override { return stream_.get(); }
  Buffer allocate(size_t bytes) override;
  void follow_compute() override;
  void sum(std::span<const ShardRange> nodes, ElementType type, std::span<const void* const> arrays,
           void* out, size_t count) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void clear(void* to, size_t bytes) override;
  void multiply(ElementType type, void* values, size_t count, double factor) override;
  std::unique_ptr<DeviceEvent> mark() override;
  void lead_compute() override;
  void finish() noexcept override;

 private:
  Allocator& allocator_;
  std::shared_ptr<FakeStream> stream_;
  std::shared_ptr<FakeStream> compute_stream_;  // null: work is done when a call returns
  std::function<void()> compute_;
};

// What the ranks of one job have in common, in this process. Ranks are those of the job.
class FakeWorld {
 public:
  explicit FakeWorld(int size, std::shared_ptr<FakeMessages> messages = nullptr)
      : size_(size), messages_(messages ? std::move(messages) : std::make_shared<FakeMemory>()) {}

  int size() const { return size_; }

  // ---- what goes wrong
  void delay_start(int rounds) { start_delay_ = rounds; }
  // An error that the library finds by itself at this rank.
  void fail(int rank, NcclResult error);
  // The next send of this rank is refused.
  void refuse_send(int rank) { refuses_ = rank; }
  // What this rank has put on its streams does not go on, until it is revoked or aborted.
  void stall_device(int rank) { stalled_ = rank; }
  // Called before each call that puts something on a stream, by the rank's thread.
  void on_call(std::function<void()> hook) { on_call_ = std::move(hook); }
  // The library is too old to revoke and to shrink.
  void be_old() { is_old_ = true; }
  // A revoked communicator is never quiet.
  void revoke_in_vain(int rank) { restless_ = rank; }
  void refuse_shrink(int rank) { shrink_refused_ = rank; }
  // Before ranks begin.
  void refuse_encryption(int rank) { without_encryption_.insert(rank); }

  // ---- what happened
  uint64_t bytes_sent(int rank);
  // Bytes that this rank has sent in communicators of so many ranks.
  uint64_t bytes_sent(int rank, int ranks);
  int aborts() const { return aborts_.load(); }
  int destroyed() const { return destroyed_.load(); }
  int made() const { return made_.load(); }
  int shrunk() const { return shrunk_.load(); }
  // Those that ranks have given, each once.
  std::set<std::string> keys();

 private:
  friend class FakeNccl;
  friend struct FakeComm;

  NcclResult state(int rank);
  void sent(int rank, int ranks, size_t bytes);

  const int size_;
  std::shared_ptr<FakeMessages> messages_;
  std::atomic<int> start_delay_{0};
  std::atomic<int> refuses_{-1};
  std::atomic<int> stalled_{-1};
  std::atomic<int> restless_{-1};
  std::atomic<int> shrink_refused_{-1};
  std::set<int> without_encryption_;
  std::atomic<bool> is_old_{false};
  std::atomic<int> aborts_{0};
  std::atomic<int> destroyed_{0};
  std::atomic<int> made_{0};
  std::atomic<int> shrunk_{0};
  std::atomic<int> ids_{0};
  std::function<void()> on_call_;
  std::mutex mutex_;
  std::map<int, NcclResult> errors_;
  std::set<std::string> keys_;
  std::map<std::pair<int, int>, uint64_t> sent_;
};

// What a communicator and the work of its streams share.
struct FakeComm {
  FakeWorld& world;
  const std::string name;
  const int job_rank;
  const int rank;
  const int size;
  std::atomic<bool> ended{false};  // revoked or aborted
  std::atomic<bool> revoked{false};
  std::atomic<int> shrinks{0};

  bool is_whole();
  void post(int to, FakeBytes bytes);
  // Empty when the communicator is ended first.
  std::optional<FakeBytes> take(int from);
};

// One rank's.
class FakeNccl : public Nccl {
 public:
  FakeNccl(std::shared_ptr<FakeWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int version() const override { return 22809; }
  std::string path() const override { return "a double"; }
  std::string explain(NcclResult result, ncclComm* comm) const override;
  Status encrypt(const std::string& key) override;
  NcclResult unique_id(NcclId& id) override;
  NcclResult init(ncclComm*& comm, int ranks, const NcclId& id, int rank) override;
  NcclResult async_error(ncclComm* comm, NcclResult& state) override;
  NcclResult revoke(ncclComm* comm) override;
  bool can_shrink() const override { return !world_->is_old_; }
  NcclResult shrink(ncclComm* comm, std::span<const int> without, ncclComm*& made) override;
  NcclResult abort(ncclComm* comm) override;
  NcclResult destroy(ncclComm* comm) override;
  NcclResult group_start() override;
  NcclResult group_end() override;
  NcclResult send(const void* from, size_t bytes, int peer, ncclComm* comm,
                  NcclStream stream) override;
  NcclResult receive(void* to, size_t bytes, int peer, ncclComm* comm, NcclStream stream) override;
  NcclResult all_reduce(const void* from, void* to, size_t count, ElementType type, ncclComm* comm,
                        NcclStream stream) override;
  NcclResult reduce_scatter(const void* from, void* to, size_t count, ElementType type,
                            ncclComm* comm, NcclStream stream) override;
  NcclResult broadcast(void* bytes, size_t size, int root, ncclComm* comm,
                       NcclStream stream) override;
  NcclResult all_gather(const void* from, void* to, size_t bytes_of_each, ncclComm* comm,
                        NcclStream stream) override;

 private:
  struct Transfer {
    bool sends;
    std::byte* memory;
    size_t bytes;
    int peer;
  };

  // On the stream: all sends, then all receives, which must be of the size that comes; then
  // `after`.
  void transfer(std::vector<Transfer> transfers, ncclComm* comm, NcclStream stream,
                std::function<void()> after = nullptr);
  // On the stream: everybody's bytes, by rank, in `all`.
  void gather(const void* from, const std::shared_ptr<std::vector<std::byte>>& all,
              size_t bytes_of_each, ncclComm* comm, NcclStream stream, std::function<void()> after);
  NcclResult add(Transfer transfer, ncclComm* comm, NcclStream stream);

  std::shared_ptr<FakeWorld> world_;
  int rank_;
  bool in_group_ = false;
  std::vector<Transfer> group_;
  ncclComm* group_comm_ = nullptr;
  NcclStream group_stream_ = nullptr;
};

}  // namespace fleet::transport::testing
