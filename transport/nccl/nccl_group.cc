#include "transport/nccl/nccl_group.h"

#include <thread>

#include "base/strings.h"
#include "transport/collective/collective.h"

namespace fleet::transport {
Status NcclHealth::broken() const {
  const std::lock_guard guard(mutex_);
  return broken_;
}

void NcclHealth::fail(const Status& reason) {
  const std::lock_guard guard(mutex_);
  if (is_broken()) return;
  broken_ = reason;
  is_broken_.store(true, std::memory_order_release);
}

void NcclHealth::set_awaited(std::string what) {
  const std::lock_guard guard(mutex_);
  awaited_ = std::move(what);
}

std::string NcclHealth::awaited() const {
  const std::lock_guard guard(mutex_);
  return awaited_;
}

NcclGroup::NcclGroup(std::shared_ptr<Nccl> nccl, std::shared_ptr<DeviceQueue> queue,
                     std::shared_ptr<NcclHealth> health, int rank, int size,
                     NcclGroupOptions options)
    : rank_(rank),
      size_(size),
      options_(options),
      nccl_(std::move(nccl)),
      queue_(std::move(queue)),
      health_(std::move(health)) {}

NcclGroup::~NcclGroup() {
  if (comm_ == nullptr) return;
  const bool ends_well = !stopped_ && !health_->is_broken();
  if (ends_well && nccl_->destroy(comm_) == NcclResult::kSuccess) return;
  if (!stopped_) (void)nccl_->revoke(comm_);
  (void)nccl_->abort(comm_);
}

void NcclGroup::connect(const NcclId& id, TimePoint deadline) {
  const TimePoint begin = steady_clock().now();
  const NcclResult made = nccl_->init(comm_, size_, id, rank_);
  if (!settle("ncclCommInitRankConfig", made, deadline)) throw_missing(begin);
}

void NcclGroup::connect_without(NcclGroup& stopped, std::span<const int> lost, TimePoint deadline) {
  constexpr const char* kCall = "ncclCommShrink";
  const TimePoint begin = steady_clock().now();
  NcclResult made = nccl_->shrink(stopped.comm_, lost, comm_);
  // The call is over when neither communicator is in progress.
  while (made == NcclResult::kInProgress) {
    NcclResult parent = NcclResult::kSuccess;
    const NcclResult asked = nccl_->async_error(stopped.comm_, parent);
    if (asked != NcclResult::kSuccess || parent != NcclResult::kInProgress) break;
    if (steady_clock().now() >= deadline) throw_missing(begin);
    std::this_thread::sleep_for(kNcclLook);
  }
  if (!settle(kCall, made, deadline)) throw_missing(begin);
}

void NcclGroup::throw_missing(TimePoint begin) const {
  const Status missing = collective_detail::missing_ranks("start of NCCL", {.phase = "connect"},
                                                          rank_, {}, steady_clock().now() - begin);
  throw_error(missing.code(), missing.text());
}

void NcclGroup::send(const std::byte* from, size_t bytes, int to) {
  if (bytes > 0) check("ncclSend", nccl_->send(from, bytes, to, comm_, queue_->stream()));
}

void NcclGroup::receive(std::byte* to, size_t bytes, int from) {
  if (bytes > 0) check("ncclRecv", nccl_->receive(to, bytes, from, comm_, queue_->stream()));
}

void NcclGroup::start_together() {
  check("ncclGroupStart", nccl_->group_start());
}

void NcclGroup::end_together() {
  check("ncclGroupEnd", nccl_->group_end());
}

void NcclGroup::all_reduce(const void* from, void* to, size_t count, ElementType type) {
  check("ncclAllReduce", nccl_->all_reduce(from, to, count, type, comm_, queue_->stream()));
}

void NcclGroup::reduce_scatter(const void* from, void* to, size_t count, ElementType type) {
  check("ncclReduceScatter", nccl_->reduce_scatter(from, to, count, type, comm_, queue_->stream()));
}

void NcclGroup::broadcast(std::span<std::byte> bytes, int root) {
  check("ncclBroadcast",
        nccl_->broadcast(bytes.data(), bytes.size(), root, comm_, queue_->stream()));
}

void NcclGroup::all_gather(const std::byte* from, std::byte* to, size_t bytes) {
  check("ncclAllGather", nccl_->all_gather(from, to, bytes, comm_, queue_->stream()));
}

void NcclGroup::look() {
  if (comm_ == nullptr) return;
  NcclResult state = NcclResult::kSuccess;
  const NcclResult asked = nccl_->async_error(comm_, state);
  if (asked != NcclResult::kSuccess) state = asked;
  if (state == NcclResult::kSuccess || state == NcclResult::kInProgress) return;
  throw_failed("an operation of NCCL", state);
}

void NcclGroup::stop() {
  if (comm_ == nullptr || std::exchange(stopped_, true)) return;
  if (revoke() && options_.keeps_ranks && nccl_->can_shrink()) return;
  (void)nccl_->abort(std::exchange(comm_, nullptr));
}

// True when nothing is under way any more.
bool NcclGroup::revoke() {
  NcclResult state = nccl_->revoke(comm_);
  if (!options_.keeps_ranks) return false;
  const TimePoint deadline = steady_clock().now() + options_.end_limit;
  while (state == NcclResult::kInProgress && steady_clock().now() < deadline) {
    std::this_thread::sleep_for(kNcclLook);
    if (nccl_->async_error(comm_, state) != NcclResult::kSuccess) return false;
  }
  return state == NcclResult::kSuccess;
}

void NcclGroup::check(const char* call, NcclResult result) {
  const TimePoint deadline = steady_clock().now() + options_.late_limit;
  if (settle(call, result, deadline)) return;
  throw_error(ErrorCode::kPeerLost, {.what = "another rank does not come to an operation of NCCL",
                                     .where = str_cat(call, ", rank ", rank_),
                                     .expected = "all ranks of the job",
                                     .got = "a call that still waits for a connection",
                                     .fix = "read the logs of the other ranks"});
}

// False when the call is still under way at the deadline. Inside of a group nothing is under way.
bool NcclGroup::settle(const char* call, NcclResult result, TimePoint deadline) {
  while (result == NcclResult::kInProgress && comm_ != nullptr) {
    if (health_->is_broken()) health_->broken().throw_if_error();
    if (steady_clock().now() >= deadline) return false;
    std::this_thread::sleep_for(kNcclLook);
    const NcclResult asked = nccl_->async_error(comm_, result);
    if (asked != NcclResult::kSuccess) result = asked;
  }
  if (result != NcclResult::kSuccess) throw_failed(call, result);
  return true;
}

void NcclGroup::throw_failed(const char* call, NcclResult result) const {
  const bool remote = result == NcclResult::kRemoteError || result == NcclResult::kSystemError;
  throw_error(remote ? ErrorCode::kPeerLost : ErrorCode::kInternal,
              {.what = "NCCL failed: " + nccl_->explain(result, comm_),
               .where = str_cat(call, ", rank ", rank_),
               .expected = "ncclSuccess",
               .got = std::string(name_of(result)),
               .fix = remote ? "read the log of the rank that ended or stands still"
                             : "run with NCCL_DEBUG=INFO to see what the library says"});
}

}  // namespace fleet::transport
