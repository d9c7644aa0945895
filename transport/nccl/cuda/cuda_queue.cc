#include "transport/nccl/cuda_queue.h"

#include <algorithm>
#include <cstring>
#include <cuda_runtime_api.h>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "transport/nccl/cuda/tree_sum_impl.h"

namespace fleet::transport {
namespace {

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  throw_error(ErrorCode::kInternal,
              {.what = str_cat("a CUDA call failed: ", cudaGetErrorString(result)),
               .where = call,
               .expected = "cudaSuccess",
               .got = cudaGetErrorName(result),
               .fix = "run with CUDA_LAUNCH_BLOCKING=1 to see which work it was"});
}

// Makes a device the calling thread's while it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    check(cudaSetDevice(device), "cudaSetDevice");
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// Shared with the buffers that are given back on it, and with events.
class Stream {
 public:
  explicit Stream(int device) : device_(device) {
    const OnDevice on(device_);
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int device() const { return device_; }
  cudaStream_t get() const { return stream_; }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
};

// Of a stream, or of what the calling thread computes.
class Event : public DeviceEvent {
 public:
  Event(std::shared_ptr<const Stream> stream, cudaStream_t after, cudaStream_t compute)
      : stream_(std::move(stream)), compute_(compute) {
    const OnDevice on(stream_->device());
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const cudaError_t recorded = cudaEventRecord(event_, after);
    if (recorded == cudaSuccess) return;
    cudaEventDestroy(event_);
    check(recorded, "cudaEventRecord");
  }
  ~Event() override { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t get() const { return event_; }
  bool done() override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) return false;
    check(state, "cudaEventQuery");
    return true;
  }
  bool lead_compute() override {
    const OnDevice on(stream_->device());
    check(cudaStreamWaitEvent(compute_, event_, 0), "cudaStreamWaitEvent");
    return true;
  }

 private:
  std::shared_ptr<const Stream> stream_;
  cudaStream_t compute_;
  cudaEvent_t event_ = nullptr;
};

class CudaQueue : public DeviceQueue {
 public:
  CudaQueue(int device, void* compute)
      : stream_(std::make_shared<Stream>(device)),
        compute_(compute == nullptr ? cudaStreamLegacy : static_cast<cudaStream_t>(compute)) {}
  ~CudaQueue() override { CudaQueue::finish(); }

  void* stream() override { return stream_->get(); }

  Buffer allocate(size_t bytes) override {
    const OnDevice on(stream_->device());
    void* memory = nullptr;
    const cudaError_t result = cudaMallocAsync(&memory, std::max<size_t>(bytes, 1), stream_->get());
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // is told by the exception instead
      throw std::bad_alloc();
    }
    check(result, "cudaMallocAsync");
    const std::shared_ptr<const void> owner(memory, [stream = stream_](const void* given) {
      cudaFreeAsync(const_cast<void*>(given), stream->get());
    });
    return Buffer(static_cast<std::byte*>(memory), bytes, owner);
  }

  void follow_compute() override {
    const Event event(stream_, compute_, compute_);
    check(cudaStreamWaitEvent(stream_->get(), event.get(), 0), "cudaStreamWaitEvent");
  }

  void sum(std::span<const ShardRange> nodes, ElementType type, std::span<const void* const> arrays,
           void* out, size_t count) override {
    if (count == 0) return;
    const OnDevice on(stream_->device());
    const std::vector<Addition> additions = additions_of(nodes);
    const Buffer told = upload(arrays, additions);
    check(
        cuda::launch_tree_sum(type, reinterpret_cast<const void* const*>(told.data()),
                              reinterpret_cast<const Addition*>(told.data() + arrays.size_bytes()),
                              static_cast<int32_t>(additions.size()), out, count, stream_->get()),
        "tree_sum");
  }

  void copy(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_->get()),
          "cudaMemcpyAsync");
  }

  void clear(void* to, size_t bytes) override {
    check(cudaMemsetAsync(to, 0, bytes, stream_->get()), "cudaMemsetAsync");
  }

  void multiply(ElementType type, void* values, size_t count, double factor) override {
    const OnDevice on(stream_->device());
    check(cuda::launch_multiply(type, values, count, factor, stream_->get()), "multiply");
  }

  void lead_compute() override { Event(stream_, stream_->get(), compute_).lead_compute(); }

  std::unique_ptr<DeviceEvent> mark() override {
    return std::make_unique<Event>(stream_, stream_->get(), compute_);
  }

  void finish() noexcept override { cudaStreamSynchronize(stream_->get()); }

 private:
  Buffer upload(std::span<const void* const> arrays, const std::vector<Addition>& additions) {
    const size_t bytes = additions.size() * sizeof(Addition);
    std::vector<std::byte> words(arrays.size_bytes() + bytes);
    std::memcpy(words.data(), arrays.data(), arrays.size_bytes());
    if (bytes > 0) std::memcpy(words.data() + arrays.size_bytes(), additions.data(), bytes);
    Buffer told = allocate(words.size());
    // Of memory that is not pinned: it has been read when this returns.
    check(cudaMemcpyAsync(told.data(), words.data(), words.size(), cudaMemcpyHostToDevice,
                          stream_->get()),
          "cudaMemcpyAsync");
    return told;
  }

  std::shared_ptr<Stream> stream_;
  cudaStream_t compute_;
};

}  // namespace

std::unique_ptr<DeviceQueue> make_cuda_queue(int device, void* compute) {
  return std::make_unique<CudaQueue>(device, compute);
}

}  // namespace fleet::transport
