// Copies that run beside a device's work.
#include <array>
#include <cstring>
#include <cuda_runtime_api.h>

#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/core/device_memory_impl.h"

namespace fleet::fluid {
namespace {

// Copies of fewer bytes are part of the command that the device is given.
constexpr size_t kSmall = size_t{64} << 10;

class Event {
 public:
  Event() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  void wait() const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  bool reached() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check_cuda(state, "cudaEventQuery");
    return true;
  }
  // What is put on the stream next begins after the event.
  void hold(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Pinned memory of the host; empty where the machine gives none.
class Pinned {
 public:
  Pinned() = default;
  ~Pinned() { reset(0); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  bool reset(size_t bytes) {
    if (bytes_ > 0) cudaFreeHost(memory_);
    bytes_ = 0;
    if (bytes == 0) return true;
    if (cudaHostAlloc(&memory_, bytes, cudaHostAllocPortable) != cudaSuccess) {
      cudaGetLastError();  // the copy is made without it
      return false;
    }
    bytes_ = bytes;
    return true;
  }
  size_t size() const { return bytes_; }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

// The host copies into pinned memory, a stream of its own from there to the device, and the work
// stream to where the bytes are read: while a step computes, the bytes of the next one arrive.
class PinnedCopier final : public FeedCopier {
 public:
  explicit PinnedCopier(const Place& place)
      : place_(place), stream_(make_cuda_stream(place)), work_(cuda_work_stream(place)) {}
  ~PinnedCopier() override {
    cudaStreamSynchronize(work_);
    cudaStreamDestroy(stream_);
  }

  void copy(void* to, const void* from, size_t bytes) override {
    Slot& slot = slots_[next_];
    if (bytes <= kSmall || !prepare(slot, bytes)) {
      return copy_device_memory(to, place_, from, {}, bytes);
    }
    next_ = (next_ + 1) % slots_.size();
    std::memcpy(slot.host.get(), from, bytes);
    check_cuda(cudaMemcpyAsync(slot.device.data(), slot.host.get(), bytes, cudaMemcpyHostToDevice,
                               stream_),
               "cudaMemcpyAsync");
    slot.arrived.record(stream_);
    slot.arrived.hold(work_);
    check_cuda(cudaMemcpyAsync(to, slot.device.data(), bytes, cudaMemcpyDeviceToDevice, work_),
               "cudaMemcpyAsync");
    slot.read.record(work_);
  }

 private:
  struct Slot {
    Pinned host;
    Buffer device;
    Event arrived;
    Event read;
  };

  // When the slot's last copy is over.
  bool prepare(Slot& slot, size_t bytes) {
    slot.read.wait();
    if (slot.host.size() >= bytes) return true;
    if (!slot.host.reset(bytes)) return false;
    slot.device = Buffer(bytes, device_allocator(place_));
    slot.read.record(work_);
    slot.read.hold(stream_);  // the memory is there
    return true;
  }

  Place place_;
  cudaStream_t stream_;
  cudaStream_t work_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
};

// The host copies into pinned memory, and the work stream from there to the device.
class PinnedValueCopier final : public FeedCopier {
 public:
  explicit PinnedValueCopier(const Place& place) : place_(place), work_(cuda_work_stream(place)) {}
  ~PinnedValueCopier() override { cudaStreamSynchronize(work_); }

  void copy(void* to, const void* from, size_t bytes) override {
    read_.wait();
    if (bytes <= kSmall || (host_.size() < bytes && !host_.reset(bytes))) {
      return copy_device_memory(to, place_, from, {}, bytes);
    }
    const CudaDeviceGuard guard(place_);
    std::memcpy(host_.get(), from, bytes);
    check_cuda(cudaMemcpyAsync(to, host_.get(), bytes, cudaMemcpyHostToDevice, work_),
               "cudaMemcpyAsync");
    read_.record(work_);
  }

 private:
  Place place_;
  cudaStream_t work_;
  Pinned host_;
  Event read_;
};

// The work stream copies within the device, and another stream from there to the host, beside what
// the work stream does next.
class PinnedHostCopier final : public HostCopier {
 public:
  explicit PinnedHostCopier(const Place& place)
      : place_(place), work_(cuda_work_stream(place)), stream_(cuda_read_stream(place)) {}
  ~PinnedHostCopier() override { cudaStreamSynchronize(stream_); }

  void start(const void* from, size_t bytes) override {
    wait();
    make_room(bytes);
    const CudaDeviceGuard guard(place_);
    on_device_ = Buffer(bytes, device_allocator(place_));
    check_cuda(cudaMemcpyAsync(on_device_.data(), from, bytes, cudaMemcpyDeviceToDevice, work_),
               "cudaMemcpyAsync");
    made_.record(work_);
    made_.hold(stream_);
    check_cuda(
        cudaMemcpyAsync(bytes_.data(), on_device_.data(), bytes, cudaMemcpyDeviceToHost, stream_),
        "cudaMemcpyAsync");
    arrived_.record(stream_);
  }
  bool done() override {
    if (on_device_ && arrived_.reached()) on_device_ = {};
    return !on_device_;
  }
  void wait() override {
    if (on_device_) arrived_.wait();
    on_device_ = {};
  }
  const Buffer& bytes() const override { return bytes_; }

 private:
  void make_room(size_t bytes) {
    if (bytes_.size() >= bytes) return;
    const auto pinned = std::make_shared<Pinned>();
    bytes_ = pinned->reset(bytes) ? Buffer(static_cast<std::byte*>(pinned->get()), bytes, pinned)
                                  : Buffer(bytes);  // the copy waits for the device then
  }

  Place place_;
  cudaStream_t work_;
  cudaStream_t stream_;
  Event made_;
  Event arrived_;
  Buffer on_device_;  // while it is under way
  Buffer bytes_;
};

class CudaPoint final : public DevicePoint {
 public:
  explicit CudaPoint(const Place& place) : place_(place) {
    const CudaDeviceGuard guard(place_);
    event_ = std::make_unique<Event>();
    event_->record(cuda_work_stream(place_));
  }
  void wait() override { event_->wait(); }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    const CudaDeviceGuard guard(place_);
    const cudaStream_t stream = cuda_read_stream(place_);
    event_->hold(stream);
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

 private:
  Place place_;
  std::unique_ptr<Event> event_;
};

}  // namespace

namespace built_in {

std::unique_ptr<FeedCopier> make_feed_copier(const Place& place) {
  const CudaDeviceGuard guard(place);
  return std::make_unique<PinnedCopier>(place);
}

std::unique_ptr<FeedCopier> make_value_copier(const Place& place) {
  const CudaDeviceGuard guard(place);
  return std::make_unique<PinnedValueCopier>(place);
}

std::unique_ptr<HostCopier> make_host_copier(const Place& place) {
  const CudaDeviceGuard guard(place);
  return std::make_unique<PinnedHostCopier>(place);
}

std::unique_ptr<DevicePoint> mark_device(const Place& place) {
  return std::make_unique<CudaPoint>(place);
}

}  // namespace built_in

}  // namespace fleet::fluid
