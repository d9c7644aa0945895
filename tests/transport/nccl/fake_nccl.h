// A double of NCCL and of a device's stream, for ranks that are threads: streams are threads,
// messages go through memory, and tests say what goes wrong.
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
#include <tuple>
#include <vector>

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
  // Of memory that `allocator` gives, which must outlive the buffers.
  explicit FakeQueue(Allocator& allocator = host_allocator(), TakeMemory take = nullptr)
      : allocator_(allocator), stream_(std::make_shared<FakeStream>(std::move(take))) {}

  void* stream() override { return stream_.get(); }
  Buffer allocate(size_t bytes) override;
  void follow_compute() override {}
  void sum(std::span<const ShardRange> nodes, ElementType type, std::span<const void* const> arrays,
           void* out, size_t count) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void clear(void* to, size_t bytes) override;
  void multiply(ElementType type, void* values, size_t count, double factor) override;
  std::unique_ptr<DeviceEvent> mark() override;
  void lead_compute() override { finish(); }
  void finish() noexcept override;

 private:
  Allocator& allocator_;
  std::shared_ptr<FakeStream> stream_;
};

// What the ranks of one job have in common.
class FakeWorld {
 public:
  explicit FakeWorld(int size) : size_(size) {}

  int size() const { return size_; }

  // ---- what goes wrong
  void delay_start(int rounds) { start_delay_ = rounds; }
  // An error that the library finds by itself at this rank.
  void fail(int rank, NcclResult error);
  // The next send of this rank is refused.
  void refuse_send(int rank) { refuses_ = rank; }

  // ---- what happened
  uint64_t bytes_sent(int rank);
  int aborts() const { return aborts_.load(); }
  int destroyed() const { return destroyed_.load(); }

 private:
  friend class FakeNccl;
  using Bytes = std::vector<std::byte>;

  NcclResult state(int rank);
  void join(int rank);
  bool is_whole();
  void post(int from, int to, Bytes bytes);
  // Empty when the rank is aborted first.
  Bytes take(int from, int to, bool& aborted);
  void abort(int rank);

  const int size_;
  std::atomic<int> start_delay_{0};
  std::atomic<int> refuses_{-1};
  std::atomic<int> aborts_{0};
  std::atomic<int> destroyed_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> joined_;
  std::set<int> aborted_;
  std::map<int, NcclResult> errors_;
  std::map<std::pair<int, int>, std::deque<Bytes>> messages_;
  std::map<int, uint64_t> sent_;
};

// One rank's.
class FakeNccl : public Nccl {
 public:
  FakeNccl(std::shared_ptr<FakeWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int version() const override { return 22809; }
  std::string path() const override { return "a double"; }
  std::string explain(NcclResult result, ncclComm*) const override;
  NcclResult unique_id(NcclId& id) override;
  NcclResult init(ncclComm*& comm, int ranks, const NcclId& id, int rank) override;
  NcclResult async_error(ncclComm* comm, NcclResult& state) override;
  NcclResult revoke(ncclComm* comm) override;
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
  void transfer(std::vector<Transfer> transfers, NcclStream stream,
                std::function<void()> after = nullptr);
  // On the stream: everybody's bytes, by rank, in `all`.
  void gather(const void* from, const std::shared_ptr<std::vector<std::byte>>& all,
              size_t bytes_of_each, NcclStream stream, std::function<void()> after);
  NcclResult add(Transfer transfer, NcclStream stream);

  std::shared_ptr<FakeWorld> world_;
  int rank_;
  bool in_group_ = false;
  std::vector<Transfer> group_;
  NcclStream group_stream_ = nullptr;
};

}  // namespace fleet::transport::testing
