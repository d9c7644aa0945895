// One communicator of NCCL's, whose operations are put on a stream; for nccl_communicator.cc.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/status.h"
#include "transport/nccl/device_queue.h"
#include "transport/nccl/nccl.h"

namespace fleet::transport {

// Between two looks at what is under way.
constexpr Duration kNcclLook = std::chrono::microseconds(20);

// What the groups of one communicator of a job share: why it failed, and what it waits for. Any
// thread may call it.
class NcclHealth {
 public:
  bool is_broken() const { return is_broken_.load(std::memory_order_acquire); }
  Status broken() const;
  // The first reason stays.
  void fail(const Status& reason);

  void set_awaited(std::string what);
  std::string awaited() const;

 private:
  mutable std::mutex mutex_;
  Status broken_;
  std::string awaited_;
  std::atomic<bool> is_broken_{false};
};

// As NcclOptions has them.
struct NcclGroupOptions {
  Duration late_limit;
  bool keeps_ranks;
  Duration end_limit;
};

// The library's communicator. Its operations throw Error, and so does whoever finds that one has
// failed. Used by one thread.
class NcclGroup {
 public:
  NcclGroup(std::shared_ptr<Nccl> nccl, std::shared_ptr<DeviceQueue> queue,
            std::shared_ptr<NcclHealth> health, int rank, int size, NcclGroupOptions options);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  DeviceQueue& queue() { return *queue_; }

  // One of them, first: with all ranks of the id; or with those that a group, which was stopped,
  // has without the lost ones.
  void connect(const NcclId& id, TimePoint deadline);
  void connect_without(NcclGroup& stopped, std::span<const int> lost, TimePoint deadline);

  void send(const std::byte* from, size_t bytes, int to);
  void receive(std::byte* to, size_t bytes, int from);
  // `calls` are done together; a failure in them ends the library's group first, so that it is not
  // left inside of it.
  template <class Calls>
  void together(const Calls& calls) {
    start_together();
    try {
      calls();
    } catch (const Error&) {
      (void)nccl_->group_end();
      throw;
    }
    end_together();
  }
  void all_reduce(const void* from, void* to, size_t count, ElementType type);
  void reduce_scatter(const void* from, void* to, size_t count, ElementType type);
  void broadcast(std::span<std::byte> bytes, int root);
  void all_gather(const std::byte* from, std::byte* to, size_t bytes);

  // Throws an error that the library found later.
  void look();
  // What is under way on the device fails, as soon as the library can. No operation comes after it.
  void stop();
  // After stop(): whether connect_without() can take it.
  bool has_ranks() const { return comm_ != nullptr; }

 private:
  void start_together();
  void end_together();
  void check(const char* call, NcclResult result);
  bool settle(const char* call, NcclResult result, TimePoint deadline);
  bool revoke();
  [[noreturn]] void throw_missing(TimePoint begin) const;
  [[noreturn]] void throw_failed(const char* call, NcclResult result) const;

  const int rank_;
  const int size_;
  const NcclGroupOptions options_;
  std::shared_ptr<Nccl> nccl_;
  std::shared_ptr<DeviceQueue> queue_;
  std::shared_ptr<NcclHealth> health_;
  ncclComm* comm_ = nullptr;
  bool stopped_ = false;
};

}  // namespace fleet::transport
