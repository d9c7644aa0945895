#include "tests/transport/nccl/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/strings.h"

struct ncclComm {
  std::shared_ptr<fleet::transport::testing::FakeComm> shared;
};

namespace fleet::transport::testing {
namespace {

FakeStream& stream_of(NcclStream stream) {
  return *static_cast<FakeStream*>(stream);
}

class Event : public DeviceEvent {
 public:
  Event(std::shared_ptr<FakeStream> stream, uint64_t number, std::shared_ptr<FakeStream> compute)
      : stream_(std::move(stream)), number_(number), compute_(std::move(compute)) {}
  bool done() override { return stream_->is_done(number_); }
  bool lead_compute() override {
    if (compute_ == nullptr) return done();
    compute_->put([stream = stream_, number = number_] { stream->wait(number); });
    return true;
  }

 private:
  std::shared_ptr<FakeStream> stream_;
  uint64_t number_;
  std::shared_ptr<FakeStream> compute_;
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

void FakeStream::wait(uint64_t number) const {
  while (!is_done(number)) std::this_thread::yield();
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
  return std::make_unique<Event>(stream_, stream_->put([] {}), compute_stream_);
}

void FakeQueue::follow_compute() {
  if (compute_) stream_->put(compute_);
  if (compute_stream_ == nullptr) return;
  stream_->put([compute = compute_stream_.get(), last = compute_stream_->put([] {})] {
    compute->wait(last);
  });
}

void FakeQueue::lead_compute() {
  if (!FakeQueue::mark()->lead_compute()) finish();
}

void FakeQueue::finish() noexcept {
  stream_->wait(stream_->put([] {}));
}

// ---- the ranks

void FakeWorld::fail(int rank, NcclResult error) {
  const std::lock_guard guard(mutex_);
  errors_.emplace(rank, error);
}

std::set<std::string> FakeWorld::keys() {
  const std::lock_guard guard(mutex_);
  return keys_;
}

uint64_t FakeWorld::bytes_sent(int rank) {
  const std::lock_guard guard(mutex_);
  uint64_t bytes = 0;
  for (const auto& [who, sent] : sent_) {
    if (who.first == rank) bytes += sent;
  }
  return bytes;
}

uint64_t FakeWorld::bytes_sent(int rank, int ranks) {
  const std::lock_guard guard(mutex_);
  return sent_[{rank, ranks}];
}

void FakeWorld::sent(int rank, int ranks, size_t bytes) {
  const std::lock_guard guard(mutex_);
  sent_[{rank, ranks}] += bytes;
}

NcclResult FakeWorld::state(int rank) {
  const std::lock_guard guard(mutex_);
  const auto found = errors_.find(rank);
  return found == errors_.end() ? NcclResult::kSuccess : found->second;
}

bool FakeComm::is_whole() {
  for (int other = 0; other < size; ++other) {
    if (!world.messages_->has_joined(name, other)) return false;
  }
  return world.start_delay_-- <= 0;
}

void FakeComm::post(int to, FakeBytes bytes) {
  world.sent(job_rank, size, bytes.size());
  world.messages_->post(name, rank, to, std::move(bytes));
}

std::optional<FakeBytes> FakeComm::take(int from) {
  while (!ended) {
    if (auto bytes = world.messages_->take(name, from, rank, std::chrono::milliseconds(1))) {
      return bytes;
    }
  }
  return std::nullopt;
}

// ---- the library

std::string FakeNccl::explain(NcclResult result, ncclComm*) const {
  return str_cat("the double says ", static_cast<int>(result));
}

Status FakeNccl::encrypt(const std::string& key) {
  if (world_->without_encryption_.contains(rank_)) {
    return Status(ErrorCode::kNotSupported, {.what = "NCCL does not encrypt",
                                             .where = path(),
                                             .expected = {},
                                             .got = "a double without it",
                                             .fix = {}});
  }
  const std::lock_guard guard(world_->mutex_);
  world_->keys_.insert(key);
  return {};
}

NcclResult FakeNccl::unique_id(NcclId& id) {
  const std::string name = str_cat("comm", getpid(), ".", world_->ids_++);
  id.fill('\0');
  std::copy(name.begin(), name.end(), id.begin());
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::init(ncclComm*& comm, int ranks, const NcclId& id, int rank) {
  EXPECT_LE(ranks, world_->size());
  EXPECT_LT(rank, ranks);
  ++world_->made_;
  comm = new ncclComm{
      std::shared_ptr<FakeComm>(new FakeComm{*world_, std::string(id.data()), rank_, rank, ranks})};
  world_->messages_->join(comm->shared->name, rank);
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::async_error(ncclComm* comm, NcclResult& state) {
  EXPECT_NE(comm, nullptr);
  FakeComm& shared = *comm->shared;
  state = shared.revoked ? NcclResult::kSuccess : world_->state(rank_);
  const bool under_way = shared.revoked ? world_->restless_ == rank_ : !shared.is_whole();
  if (state == NcclResult::kSuccess && under_way) state = NcclResult::kInProgress;
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::revoke(ncclComm* comm) {
  if (world_->is_old_) return NcclResult::kSuccess;
  comm->shared->revoked = true;
  comm->shared->ended = true;
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::shrink(ncclComm* comm, std::span<const int> without, ncclComm*& made) {
  if (world_->shrink_refused_ == rank_) return NcclResult::kInvalidUsage;
  FakeComm& old = *comm->shared;
  EXPECT_EQ(std::count(without.begin(), without.end(), old.rank), 0);
  ++world_->shrunk_;
  old.ended = true;
  const auto before = static_cast<int>(
      std::count_if(without.begin(), without.end(), [&](int lost) { return lost < old.rank; }));
  made = new ncclComm{std::shared_ptr<FakeComm>(
      new FakeComm{*world_, str_cat(old.name, ".without", ++old.shrinks), rank_, old.rank - before,
                   old.size - static_cast<int>(without.size())})};
  world_->messages_->join(made->shared->name, made->shared->rank);
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::abort(ncclComm* comm) {
  comm->shared->ended = true;
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
  if (!group_.empty()) transfer(std::exchange(group_, {}), group_comm_, group_stream_);
  return NcclResult::kInProgress;
}

NcclResult FakeNccl::add(Transfer what, ncclComm* comm, NcclStream stream) {
  if (what.sends && world_->refuses_ == rank_) return NcclResult::kInvalidArgument;
  if (!in_group_) {
    transfer({what}, comm, stream);
    return NcclResult::kSuccess;
  }
  group_comm_ = comm;
  group_stream_ = stream;
  group_.push_back(what);
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::send(const void* from, size_t bytes, int peer, ncclComm* comm,
                          NcclStream stream) {
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(from));
  return add({true, memory, bytes, peer}, comm, stream);
}

NcclResult FakeNccl::receive(void* to, size_t bytes, int peer, ncclComm* comm, NcclStream stream) {
  return add({false, static_cast<std::byte*>(to), bytes, peer}, comm, stream);
}

void FakeNccl::transfer(std::vector<Transfer> transfers, ncclComm* comm, NcclStream stream,
                        std::function<void()> after) {
  if (world_->on_call_) world_->on_call_();
  stream_of(stream).put([world = world_, comm = comm->shared, transfers = std::move(transfers),
                         after = std::move(after)] {
    while (world->stalled_ == comm->job_rank && !comm->ended) std::this_thread::yield();
    for (const Transfer& one : transfers) {
      if (one.sends) comm->post(one.peer, {one.memory, one.memory + one.bytes});
    }
    for (const Transfer& one : transfers) {
      if (one.sends) continue;
      const auto bytes = comm->take(one.peer);
      if (!bytes) return;
      // As ranks that call different operations: a device would read and write past the ends.
      if (bytes->size() != one.bytes) {
        return world->fail(comm->job_rank, NcclResult::kInvalidUsage);
      }
      if (!bytes->empty()) std::memcpy(one.memory, bytes->data(), bytes->size());
    }
    if (after) after();
  });
}

void FakeNccl::gather(const void* from, const std::shared_ptr<std::vector<std::byte>>& all,
                      size_t bytes, ncclComm* comm, NcclStream stream,
                      std::function<void()> after) {
  auto* const own = static_cast<std::byte*>(const_cast<void*>(from));
  std::vector<Transfer> transfers;
  for (int other = 0; other < comm->shared->size; ++other) {
    const size_t place = static_cast<size_t>(other) * bytes;
    transfers.push_back({true, own, bytes, other});
    transfers.push_back({false, all->data() + place, bytes, other});
  }
  transfer(std::move(transfers), comm, stream, [all, after = std::move(after)] { after(); });
}

NcclResult FakeNccl::all_reduce(const void* from, void* to, size_t count, ElementType type,
                                ncclComm* comm, NcclStream stream) {
  const size_t bytes = count * size_of(type);
  auto all =
      std::make_shared<std::vector<std::byte>>(bytes * static_cast<size_t>(comm->shared->size));
  // Each rank from another one on: an order of its own.
  gather(from, all, bytes, comm, stream, [all = all.get(), to, bytes, count, type] {
    const size_t ranks = bytes == 0 ? 0 : all->size() / bytes;
    for (size_t rank = 1; rank < ranks; ++rank) {
      add_to(type, all->data(), all->data() + rank * bytes, count);
    }
    if (bytes > 0) std::memcpy(to, all->data(), bytes);
  });
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::reduce_scatter(const void* from, void* to, size_t count, ElementType type,
                                    ncclComm* comm, NcclStream stream) {
  const size_t bytes = count * size_of(type);
  const auto ranks = static_cast<size_t>(comm->shared->size);
  auto all = std::make_shared<std::vector<std::byte>>(bytes * ranks * ranks);
  const size_t own = static_cast<size_t>(comm->shared->rank) * bytes;
  gather(from, all, bytes * ranks, comm, stream,
         [all = all.get(), to, bytes, count, type, ranks, own] {
           for (size_t rank = 1; rank < ranks; ++rank) {
             add_to(type, all->data() + own, all->data() + rank * bytes * ranks + own, count);
           }
           if (bytes > 0) std::memcpy(to, all->data() + own, bytes);
         });
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::broadcast(void* bytes, size_t size, int root, ncclComm* comm,
                               NcclStream stream) {
  auto* const memory = static_cast<std::byte*>(bytes);
  std::vector<Transfer> transfers;
  if (comm->shared->rank != root) {
    transfers.push_back({false, memory, size, root});
  } else {
    for (int other = 0; other < comm->shared->size; ++other) {
      if (other != root) transfers.push_back({true, memory, size, other});
    }
  }
  transfer(std::move(transfers), comm, stream);
  return NcclResult::kSuccess;
}

NcclResult FakeNccl::all_gather(const void* from, void* to, size_t bytes, ncclComm* comm,
                                NcclStream stream) {
  auto all =
      std::make_shared<std::vector<std::byte>>(bytes * static_cast<size_t>(comm->shared->size));
  gather(from, all, bytes, comm, stream, [all = all.get(), to] {
    if (!all->empty()) std::memcpy(to, all->data(), all->size());
  });
  return NcclResult::kSuccess;
}

}  // namespace fleet::transport::testing
