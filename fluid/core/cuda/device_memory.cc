#include <algorithm>
#include <cuda_runtime_api.h>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/core/device_memory_impl.h"

namespace fleet::fluid {
namespace {

thread_local bool t_recording = false;

void check_not_recording(const char* what) {
  if (!t_recording) return;
  throw_error(ErrorCode::kNotSupported, {.what = str_cat(what, " while a step is recorded"),
                                         .where = "cuda_graph",
                                         .expected = "work on the stream alone",
                                         .got = {},
                                         .fix = "run the step op by op"});
}

// Memory is taken and given back in the order of the work stream.
class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(const Place& place)
      : place_(place), stream_(make_cuda_stream(place)), read_stream_(make_cuda_stream(place)) {
    const CudaDeviceGuard guard(place_);
    int supported = 0;
    check_cuda(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, place_.device),
               "cudaDeviceGetAttribute");
    pooled_ = supported != 0;
    if (!pooled_) return;
    cudaMemPool_t pool = nullptr;
    check_cuda(cudaDeviceGetDefaultMemPool(&pool, place_.device), "cudaDeviceGetDefaultMemPool");
    // Feeds and fetches come and go with every step: their memory stays in the pool meanwhile.
    uint64_t kept_bytes = uint64_t{256} << 20;
    check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes),
               "cudaMemPoolSetAttribute");
  }

  cudaStream_t work_stream() const { return stream_; }
  cudaStream_t read_stream() const { return read_stream_; }

  std::byte* allocate(size_t bytes) override {
    check_not_recording("memory is taken");
    const CudaDeviceGuard guard(place_);
    void* memory = nullptr;
    const size_t rounded = std::max<size_t>(bytes, 256);
    const cudaError_t result =
        pooled_ ? cudaMallocAsync(&memory, rounded, stream_) : cudaMalloc(&memory, rounded);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // is told by the exception instead
      throw std::bad_alloc();
    }
    check_cuda(result, pooled_ ? "cudaMallocAsync" : "cudaMalloc");
    return static_cast<std::byte*>(memory);
  }

  void deallocate(std::byte* memory, size_t) noexcept override {
    int previous = 0;
    cudaGetDevice(&previous);
    cudaSetDevice(place_.device);
    if (pooled_) {
      cudaFreeAsync(memory, stream_);
    } else {
      cudaStreamSynchronize(stream_);
      cudaFree(memory);
    }
    cudaSetDevice(previous);
  }

 private:
  Place place_;
  cudaStream_t stream_;
  cudaStream_t read_stream_;
  bool pooled_ = false;
};

// Made at the first use of each device, and never given back: buffers may outlive everything else.
class Allocators {
 public:
  CudaAllocator& of(const Place& place) {
    const char* reason = nullptr;
    const int count = cuda_device_count(&reason);
    if (place.device < 0 || place.device >= count) {
      throw_error(ErrorCode::kNotSupported,
                  {.what = count == 0 ? str_cat("no CUDA device: ", reason)
                                      : std::string("there is no such CUDA device"),
                   .where = "place " + place.to_string(),
                   .expected = count == 0 ? "a machine with a GPU and its driver"
                                          : str_cat("cuda:0 to cuda:", count - 1),
                   .got = place.to_string(),
                   .fix = "choose another place, such as CPUPlace()"});
    }
    const std::lock_guard lock(mutex_);
    allocators_.resize(std::max(allocators_.size(), static_cast<size_t>(count)));
    auto& allocator = allocators_[static_cast<size_t>(place.device)];
    if (allocator == nullptr) allocator = std::make_unique<CudaAllocator>(place);
    return *allocator;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<CudaAllocator>> allocators_;
};

CudaAllocator& allocator_at(const Place& place) {
  static auto* const kAllocators = new Allocators;
  return kAllocators->of(place);
}

}  // namespace

cudaStream_t cuda_work_stream(const Place& place) {
  return allocator_at(place).work_stream();
}

cudaStream_t cuda_read_stream(const Place& place) {
  return allocator_at(place).read_stream();
}

cudaStream_t make_cuda_stream(const Place& place) {
  const CudaDeviceGuard guard(place);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  return stream;
}

void set_recording_here(bool recording) {
  t_recording = recording;
}

void check_cuda(cudaError_t result, std::string_view call) {
  if (result == cudaSuccess) return;
  throw_error(ErrorCode::kInternal,
              {.what = str_cat("a CUDA call failed: ", cudaGetErrorString(result)),
               .where = std::string(call),
               .expected = "cudaSuccess",
               .got = cudaGetErrorName(result),
               .fix = "run with CUDA_LAUNCH_BLOCKING=1 to see which op's work it was"});
}

int cuda_device_count(const char** reason) {
  int count = 0;
  cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess) {
    count = 0;
    cudaGetLastError();
  } else if (count == 0) {
    result = cudaErrorNoDevice;
  }
  if (reason != nullptr) *reason = cudaGetErrorString(result);
  return count;
}

CudaDeviceGuard::CudaDeviceGuard(const Place& place) {
  check_cuda(cudaGetDevice(&previous_), "cudaGetDevice");
  if (previous_ != place.device) check_cuda(cudaSetDevice(place.device), "cudaSetDevice");
}

CudaDeviceGuard::~CudaDeviceGuard() {
  int current = 0;
  if (cudaGetDevice(&current) == cudaSuccess && current != previous_) cudaSetDevice(previous_);
}

namespace built_in {

int device_count() {
  return cuda_device_count(nullptr);
}

Allocator& device_allocator(const Place& place) {
  return allocator_at(place);
}

void* work_stream(const Place& place) {
  return cuda_work_stream(place);
}

// A copy of host memory that is not pinned has read it when the call returns.
void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes) {
  check_not_recording("bytes are copied");
  const Place& device = to_place.is_cpu() ? from_place : to_place;
  const CudaDeviceGuard guard(device);
  const cudaStream_t stream = cuda_work_stream(device);
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  if (to_place.is_cpu()) check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace built_in

}  // namespace fleet::fluid
