#include "tests/transport/nccl/fake_nccl.h"

#include <cstring>
#include <gtest/gtest.h>

#include "base/strings.h"

struct ncclComm {};

namespace fleet::transport::testing {
namespace {

FakeStream& stream_of(NcclStream stream) {
  return *static_cast<FakeStream*>(stream);
}

class Event : public DeviceEvent {
 public:
  Event(std::shared_ptr<FakeStream> stream, uint64_t number)
      : stream_(std::move(stream)), number_(number) {}
  bool done() override { return stream_->is_done(number_); }

 private:
  std::shared_ptr<FakeStream> stream_;
  uint64_t number_;
};

void add_to(ElementType type, std::byte* sum, const std::byte* more, size_t count) {
  const void* both[] = {sum, more};
  sum_arrays(TreeSum(2), type, both, sum, count);
}

}  // namespace

// ---- the stream

FakeStream::FakeStream(TakeMemory take) : take_(std::move(take)), thread_([this] { run(); }) {}

FakeStream::~FakeStream() {
  {
    const std::lock_guard guard(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t FakeStream::put(std::function<void()> work) {
  const std::lock_guard guard(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
  return ++put_;
}

void FakeStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !work_.empty(); });
    if (work_.empty()) return;
    auto work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    {
      const auto memory = take_ ? take_() : nullptr;
      work();
    }
    work = nullptr;
    lock.lock();
    ++done_;
  }
}

Buffer FakeQueue::allocate(size_t bytes) {
  Buffer memory(bytes, allocator_);
  std::byte* const data = memory.data();
  // In the stream's order.
  const std::shared_ptr<const void> owner(
      data, [memory = std::move(memory), stream = std::weak_ptr(stream_)](const void*) {
        if (const auto there = stream.lock()) there->put([memory] {});
      });
  return Buffer(data, bytes, owner);
}

void FakeQueue::sum(std::span<const ShardRange> nodes, ElementType type,
                    std::span<const void* const> arrays, void* out, size_t count) {
  stream_->put([order = TreeSum(nodes, nodes.back().end), type, out, count,
                arrays = std::vector<const void*>(arrays.begin(), arrays.end())] {
    sum_arrays(order, type, arrays, out, count);
  });
}

void FakeQueue::copy(void* to, const void* from, size_t bytes) {
  stream_->put([=] { std::memcpy(to, from, bytes); });
}

void FakeQueue::clear(void* to, size_t bytes) {
  stream_->put([=] { std::memset(to, 0, bytes); });
}

void FakeQueue::multiply(ElementType type, void* values, size_t count, double factor) {
  stream_->put([=] { single_communicator()->multiply(type, values, count, factor); });
}

std::unique_ptr<DeviceEvent> FakeQueue::mark() {
  return std::make_unique<Event>(stream_, stream_->put([] {}));
}

void FakeQueue::finish() noexcept {
  const uint64_t last = stream_->put([] {});
  while (!stream_->is_done(last)) std::this_thread::yield();
}

// ---- the ranks

void FakeWorld::fail(int rank, NcclResult error) {
  const std::lock_guard guard(mutex_);
  errors_.emplace(rank, error);
}

uint64_t FakeWorld::bytes_sent(int rank) {
  const std::lock_guard guard(mutex_);
  return sent_[rank];
}

NcclResult FakeWorld::state(int rank) {
  const std::lock_guard guard(mutex_);
  const auto found = errors_.find(rank);
  return found == errors_.end() ? NcclResult::kSuccess : found->second;
}

void FakeWorld::join(int rank) {
  const std::lock_guard guard(mutex_);
  joined_.insert(rank);
}

bool FakeWorld::is_whole() {
  const std::lock_guard guard(mutex_);
  return static_cast<int>(joined_.size()) == size_ && start_delay_-- <= 0;
}

void FakeWorld::post(int from, int to, Bytes bytes) {
  const std::lock_guard guard(mutex_);
  sent_[from] += bytes.size();
  messages_[{from, to}].push_back(std::move(bytes));
  changed_.notify_all();
}

FakeWorld::Bytes FakeWorld::take(int from, int to, bool& aborted) {
  std::unique_lock lock(mutex_);
  auto& waiting = messages_[{from, to}];
  changed_.wait(lock, [&] { return !waiting.empty() || aborted_.contains(to); });
  aborted = waiting.empty();
  if (aborted) return {};
  Bytes bytes = std::move(waiting.front());
  waiting.pop_front();
  return bytes;
}

void FakeWorld::abort(int rank) {
  const std::lock_guard guard(mutex_);
  aborted_.insert(rank);
  changed_.notify_all();
}

// ---- the library

std::string FakeNccl::explain(NcclResult result, ncclComm*) const {
  return str_cat("the double says ", static_cast<int>(result));
}

NcclResult FakeNccl::unique_id(NcclId& id) {
  id.fill('i');
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::init(ncclComm*& comm, int ranks, const NcclId&, int rank) {
  EXPECT_EQ(ranks, world_->size());
  EXPECT_EQ(rank, rank_);
  comm = new ncclComm;
  world_->join(rank);
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::async_error(ncclComm* comm, NcclResult& state) {
  EXPECT_NE(comm, nullptr);
  state = world_->state(rank_);
  if (state == NcclResult::kSuccess && !world_->is_whole()) state = NcclResult::kInProgress;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::revoke(ncclComm*) {
  world_->abort(rank_);
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::abort(ncclComm* comm) {
  world_->abort(rank_);
  ++world_->aborts_;
  delete comm;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::destroy(ncclComm* comm) {
  ++world_->destroyed_;
  delete comm;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::group_start() {
  EXPECT_FALSE(in_group_);
  in_group_ = true;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::group_end() {
  EXPECT_TRUE(in_group_);
  in_group_ = false;
  if (!group_.empty()) transfer(std::exchange(group_, {}), group_stream_);
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::add(Transfer what, NcclStream stream) {
  if (what.sends && world_->refuses_ == rank_) return NcclResult::kInvalidArgument;
  if (!in_group_) {
    transfer({what}, stream);
    return NcclResult::kSuccess;
  }
  group_stream_ = stream;
  group_.push_back(what);
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::send(const void* from, size_t bytes, int peer, ncclComm*, NcclStream stream) {
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(from));
  return add({true, memory, bytes, peer}, stream);
}

NcclResult FakeNccl::receive(void* to, size_t bytes, int peer, ncclComm*, NcclStream stream) {
  return add({false, static_cast<std::byte*>(to), bytes, peer}, stream);
}

void FakeNccl::transfer(std::vector<Transfer> transfers, NcclStream stream,
                        std::function<void()> after) {
  stream_of(stream).put(
      [world = world_, rank = rank_, transfers = std::move(transfers), after = std::move(after)] {
        for (const Transfer& one : transfers) {
          if (one.sends) world->post(rank, one.peer, {one.memory, one.memory + one.bytes});
        }
        for (const Transfer& one : transfers) {
          if (one.sends) continue;
          bool aborted = false;
          const auto bytes = world->take(one.peer, rank, aborted);
          if (aborted) return;
          // As ranks that call different operations: a device would read and write past the ends.
          if (bytes.size() != one.bytes) return world->fail(rank, NcclResult::kInvalidUsage);
          if (!bytes.empty()) std::memcpy(one.memory, bytes.data(), bytes.size());
        }
        if (after) after();
      });
}

void FakeNccl::gather(const void* from, const std::shared_ptr<std::vector<std::byte>>& all,
                      size_t bytes, NcclStream stream, std::function<void()> after) {
  auto* const own = static_cast<std::byte*>(const_cast<void*>(from));
  std::vector<Transfer> transfers;
  for (int other = 0; other < world_->size(); ++other) {
    const size_t place = static_cast<size_t>(other) * bytes;
    transfers.push_back({true, own, bytes, other});
    transfers.push_back({false, all->data() + place, bytes, other});
  }
  transfer(std::move(transfers), stream, [all, after = std::move(after)] { after(); });
}

NcclResult FakeNccl::all_reduce(const void* from, void* to, size_t count, ElementType type,
                                ncclComm*, NcclStream stream) {
  const size_t bytes = count * size_of(type);
  auto all = std::make_shared<std::vector<std::byte>>(bytes * static_cast<size_t>(world_->size()));
  // Each rank from another one on: an order of its own.
  gather(from, all, bytes, stream, [all = all.get(), to, bytes, count, type] {
    const size_t ranks = bytes == 0 ? 0 : all->size() / bytes;
    for (size_t rank = 1; rank < ranks; ++rank) {
      add_to(type, all->data(), all->data() + rank * bytes, count);
    }
    if (bytes > 0) std::memcpy(to, all->data(), bytes);
  });
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::reduce_scatter(const void* from, void* to, size_t count, ElementType type,
                                    ncclComm*, NcclStream stream) {
  const size_t bytes = count * size_of(type);
  const auto ranks = static_cast<size_t>(world_->size());
  auto all = std::make_shared<std::vector<std::byte>>(bytes * ranks * ranks);
  const size_t own = static_cast<size_t>(rank_) * bytes;
  gather(from, all, bytes * ranks, stream, [all = all.get(), to, bytes, count, type, ranks, own] {
    for (size_t rank = 1; rank < ranks; ++rank) {
      add_to(type, all->data() + own, all->data() + rank * bytes * ranks + own, count);
    }
    if (bytes > 0) std::memcpy(to, all->data() + own, bytes);
  });
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::broadcast(void* bytes, size_t size, int root, ncclComm*, NcclStream stream) {
  auto* const memory = static_cast<std::byte*>(bytes);
  std::vector<Transfer> transfers;
  if (rank_ != root) {
    transfers.push_back({false, memory, size, root});
  } else {
    for (int other = 0; other < world_->size(); ++other) {
      if (other != root) transfers.push_back({true, memory, size, other});
    }
  }
  transfer(std::move(transfers), stream);
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::all_gather(const void* from, void* to, size_t bytes, ncclComm*,
                                NcclStream stream) {
  auto all = std::make_shared<std::vector<std::byte>>(bytes * static_cast<size_t>(world_->size()));
  gather(from, all, bytes, stream, [all = all.get(), to] {
    if (!all->empty()) std::memcpy(to, all->data(), all->size());
  });
  return NcclResult::kSuccess;
}

}  // namespace fleet::transport::testing
