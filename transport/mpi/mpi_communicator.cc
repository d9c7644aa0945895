#include "transport/mpi/mpi_communicator.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <sched.h>
#include <time.h>

#include "base/strings.h"
#include "transport/mpi/mpi_operations_impl.h"

namespace fleet::transport {
namespace {

using mpi_detail::Machine;
using mpi_detail::Reduction;

constexpr uint64_t kTags = uint64_t{1} << 29;

// How a waiting rank passes the time: it looks again and again as long as something happens, then
// offers its core to others, then sleeps for a moment at a time. A rank that slept is let in again
// at once, one that only offered its core may wait for a whole time slice of somebody else's.
class Patience {
 public:
  Patience(bool oversubscribed, TimePoint deadline)
      : oversubscribed_(oversubscribed),
        start_(steady_clock().now()),
        moved_(start_),
        deadline_(deadline) {}

  // `progress`: a number that changes whenever something happens. False when the deadline has
  // passed.
  bool rest(uint64_t progress) {
    if (!oversubscribed_ && ++rounds_ % kLooks != 0) return true;
    const TimePoint now = steady_clock().now();
    if (now >= deadline_) return false;
    if (progress != progress_) {
      progress_ = progress;
      moved_ = now;
    }
    const Duration idle = now - moved_;
    if (idle > kSpin) {
      const timespec span{0, idle > kNap ? 100'000 : 10'000};
      nanosleep(&span, nullptr);
    } else if (oversubscribed_) {
      sched_yield();
    }
    return true;
  }
  Duration waited() const { return steady_clock().now() - start_; }

 private:
  static constexpr uint32_t kLooks = 16;  // between two looks at the clock
  static constexpr Duration kSpin = std::chrono::microseconds(200);
  static constexpr Duration kNap = std::chrono::milliseconds(50);

  bool oversubscribed_;
  uint32_t rounds_ = 0;
  uint64_t progress_ = 0;
  TimePoint start_;
  TimePoint moved_;
  TimePoint deadline_;
};

struct Pending {
  std::unique_ptr<Machine> machine;
  std::string_view name;
  CollectiveLabel label;
  bool done = false;
};

// Shared by the communicator and its tokens.
class Engine {
 public:
  Engine(MpiSession& session, MPI_Comm comm) : session_(session) {
    group_.comm = comm;
    group_.rank = session.rank();
    group_.size = session.size();
  }

  ~Engine() {
    if (!active_.empty()) session_.mark_lost();
    if (session_.lost()) {
      // MPI may still know the buffers of operations that never end.
      for (auto& pending : active_) session_.keep(std::move(pending));
      return;
    }
    if (!MpiSession::is_open()) return;
    const auto guard = session_.lock();
    MPI_Comm_free(&group_.comm);
  }

  const mpi_detail::Group& group() const { return group_; }

  std::shared_ptr<Pending> start(std::unique_ptr<Machine> machine, std::string_view name,
                                 CollectiveLabel label) {
    auto pending = std::make_shared<Pending>(Pending{std::move(machine), name, label, false});
    active_.push_back(pending);
    progress();
    return pending;
  }

  int next_tag() { return static_cast<int>(2 * (operations_++ % kTags)); }

  bool test(const Pending& pending) {
    if (!pending.done) progress();
    return pending.done || !broken().ok();
  }

  Status wait(const Pending& pending, TimePoint deadline) {
    if (test(pending)) return outcome(pending);
    Patience patience(session_.oversubscribed(), deadline);
    while (!test(pending)) {
      if (!patience.rest(group_.progress)) fail_late(pending, patience.waited());
    }
    return outcome(pending);
  }

  Status broken() {
    if (!is_broken_.load(std::memory_order_acquire)) return {};
    const std::lock_guard guard(mutex_);
    return broken_;
  }

  void fail(Status reason) {
    session_.mark_lost();
    const std::lock_guard guard(mutex_);
    if (broken_.ok()) broken_ = std::move(reason);
    is_broken_.store(true, std::memory_order_release);
  }

 private:
  Status outcome(const Pending& pending) { return pending.done ? Status() : broken(); }

  void progress() {
    if (is_broken_.load(std::memory_order_acquire)) return;
    try {
      const auto guard = session_.lock();
      for (auto& pending : active_) pending->done = pending->machine->advance(group_);
      std::erase_if(active_, [](const auto& pending) { return pending->done; });
    } catch (const Error& error) {
      fail(Status(error.code(), error.text()));
    }
  }

  void fail_late(const Pending& pending, Duration waited) {
    std::vector<int> missing;
    {
      const auto guard = session_.lock();
      pending.machine->waits_for(missing);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    fail(collective_detail::missing_ranks(pending.name, pending.label, group_.rank, missing,
                                          waited));
  }

  MpiSession& session_;
  mpi_detail::Group group_;
  uint64_t operations_ = 0;
  std::vector<std::shared_ptr<Pending>> active_;
  std::atomic<bool> is_broken_{false};
  std::mutex mutex_;
  Status broken_;
};

class MpiOperation : public CollectiveOperation {
 public:
  MpiOperation(std::shared_ptr<Engine> engine, std::shared_ptr<Pending> pending)
      : engine_(std::move(engine)), pending_(std::move(pending)) {}
  bool test() override { return engine_->test(*pending_); }
  Status wait(TimePoint deadline) override { return engine_->wait(*pending_, deadline); }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Pending> pending_;
};

class MpiCommunicator : public CollectiveCommunicator {
 public:
  MpiCommunicator(MpiSession& session, MPI_Comm comm, MpiCommunicatorOptions options)
      : engine_(std::make_shared<Engine>(session, comm)), options_(options) {}

  int rank() const override { return engine_->group().rank; }
  int size() const override { return engine_->group().size; }

  CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                             std::span<const void* const> parts, void* out, size_t count,
                             CollectiveLabel label) override {
    if (auto status = check(layout, parts.size()); !status.ok()) return CollectiveToken(status);
    if (count == 0) return {};
    Reduction reduction = make_reduction(layout, type, parts, out, count);
    const int tag = engine_->next_tag();
    const bool direct = count * size_of(type) * layout.parts() <= options_.direct_limit_bytes;
    return start(direct ? mpi_detail::direct_all_reduce(std::move(reduction), tag)
                        : mpi_detail::piecewise_all_reduce(std::move(reduction), tag,
                                                           options_.piece_bytes, options_.window),
                 "all_reduce", label);
  }

  CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                 std::span<const void* const> parts, void* out,
                                 std::span<const size_t> counts, CollectiveLabel label) override {
    if (auto status = check(layout, parts.size()); !status.ok()) return CollectiveToken(status);
    size_t total = 0;
    for (const size_t count : counts) total += count;
    if (total == 0) return {};
    return start(mpi_detail::scatter_reduce(make_reduction(layout, type, parts, out, total),
                                            {counts.begin(), counts.end()}, engine_->next_tag()),
                 "reduce_scatter", label);
  }

  CollectiveToken broadcast(std::span<std::byte> bytes, int root, CollectiveLabel label) override {
    return start(mpi_detail::tree_broadcast(bytes, root, engine_->next_tag()), "broadcast", label);
  }

  CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                             CollectiveLabel label) override {
    return start(mpi_detail::direct_all_gather(mine, all, engine_->next_tag()), "all_gather",
                 label);
  }

  CollectiveToken barrier(CollectiveLabel label) override {
    return start(mpi_detail::direct_all_gather({}, {}, engine_->next_tag()), "barrier", label);
  }

  void abort(Status reason) override { engine_->fail(std::move(reason)); }

 private:
  Status check(const ShardLayout& layout, size_t parts) const {
    return collective_detail::check_reduction(layout, rank(), size(), parts);
  }

  static Reduction make_reduction(const ShardLayout& layout, ElementType type,
                                  std::span<const void* const> parts, void* out, size_t count) {
    Reduction reduction{layout, type, {}, static_cast<std::byte*>(out), count};
    for (const void* part : parts) reduction.parts.push_back(static_cast<const std::byte*>(part));
    return reduction;
  }

  CollectiveToken start(std::unique_ptr<Machine> machine, std::string_view name,
                        CollectiveLabel label) {
    if (auto status = engine_->broken(); !status.ok()) return CollectiveToken(std::move(status));
    auto pending = engine_->start(std::move(machine), name, label);
    if (pending->done) return {};
    return CollectiveToken(std::make_shared<MpiOperation>(engine_, std::move(pending)));
  }

  std::shared_ptr<Engine> engine_;
  MpiCommunicatorOptions options_;
};

}  // namespace

Result<std::unique_ptr<CollectiveCommunicator>> make_mpi_communicator(
    MpiSession& session, Duration timeout, MpiCommunicatorOptions options) {
  if (session.size() == 1) return single_communicator();
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto guard = session.lock();
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
  }
  Patience patience(session.oversubscribed(), steady_clock().now() + timeout);
  int done = 0;
  while (true) {
    {
      const auto guard = session.lock();
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (done != 0) break;
    if (patience.rest(0)) continue;
    session.mark_lost();
    return collective_detail::missing_ranks("creation", {.phase = "a communicator"}, session.rank(),
                                            {}, patience.waited());
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  std::unique_ptr<CollectiveCommunicator> made =
      std::make_unique<MpiCommunicator>(session, comm, options);
  return made;
}

}  // namespace fleet::transport
