// Two devices in memory of the host, in place of what fluid/core/cuda, fluid/kernels/cuda and the
// CUDA libraries have: work is done when the call that puts it on a stream returns.
#include <cstdlib>
#include <cstring>
#include <cublas_v2.h>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/core/device_memory_impl.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/cuda/shape/move_loops.h"
#include "fluid/kernels/device_kernels_impl.h"
#include "tests/testing/cuda_on_host/stream.h"

extern "C" cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                       cudaStream_t) {
  fleet::testing::put_on_stream([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

namespace fleet::testing {
namespace {

Work* g_recorded = nullptr;
uint64_t g_recorded_runs = 0;

}  // namespace

void put_on_stream(std::function<void()> work) {
  if (g_recorded == nullptr) {
    work();
  } else {
    g_recorded->push_back(std::move(work));
  }
}

void record_stream(Work* work) {
  g_recorded = work;
}

void run_again(const Work& work) {
  ++g_recorded_runs;
  for (const auto& each : work) each();
}

uint64_t recorded_runs() {
  return g_recorded_runs;
}

}  // namespace fleet::testing

namespace fleet::fluid {
namespace {

constexpr int kDevices = 2;

class HostCopierAtOnce final : public HostCopier {
 public:
  void start(const void* from, size_t bytes) override {
    if (bytes_.size() < bytes) bytes_ = Buffer(bytes);
    std::memcpy(bytes_.data(), from, bytes);
  }
  bool done() override { return true; }
  void wait() override {}
  const Buffer& bytes() const override { return bytes_; }

 private:
  Buffer bytes_;
};

// What is read before it is written is found by its values, which no test expects.
class HostAllocator final : public Allocator {
 public:
  std::byte* allocate(size_t bytes) override {
    const size_t rounded = (bytes + 255) / 256 * 256 + 256;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(256, rounded));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0xC1, rounded);
    return memory;
  }
  void deallocate(std::byte* memory, size_t) noexcept override { std::free(memory); }
};

std::shared_ptr<testing::Work> g_recording;

}  // namespace

void check_cuda(cudaError_t result, std::string_view call) {
  if (result == cudaSuccess) return;
  throw_error(ErrorCode::kInternal, {.what = str_cat(call, " failed: ", static_cast<int>(result))});
}

int cuda_device_count(const char** reason) {
  if (reason != nullptr) *reason = "";
  return kDevices;
}

CudaDeviceGuard::CudaDeviceGuard(const Place&) {}
CudaDeviceGuard::~CudaDeviceGuard() = default;

namespace cuda {

// Few rows need no sorting, and here all are few.
size_t sort_bytes(int64_t) {
  return 0;
}
template <class T>
void add_sorted_rows(RawStream, const RowIndices&, int64_t, const T*, T*, std::byte*) {
  std::abort();
}
template void add_sorted_rows(RawStream, const RowIndices&, int64_t, const float*, float*,
                              std::byte*);
template void add_sorted_rows(RawStream, const RowIndices&, int64_t, const double*, double*,
                              std::byte*);

Stream::Stream(const Place& place) : place_(place) {}
Stream::~Stream() = default;
void Stream::switch_streams() {}
cublasHandle_t Stream::blas() {
  return reinterpret_cast<cublasHandle_t>(this);
}
void Stream::synchronize() const {}

}  // namespace cuda

void register_device_kernels(KernelTable& table) {
  cuda::register_all(table);
}

namespace built_in {

int device_count() {
  return cuda_device_count();
}

Allocator& device_allocator(const Place& place) {
  static auto* const kAllocator = new HostAllocator;
  if (place.device >= 0 && place.device < kDevices) return *kAllocator;
  throw_error(ErrorCode::kNotSupported, {.what = "there is no such CUDA device",
                                         .where = "place " + place.to_string(),
                                         .expected = "cuda:0 or cuda:1",
                                         .got = place.to_string(),
                                         .fix = "choose another place"});
}

void copy_device_memory(void* to, const Place&, const void* from, const Place&, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void* work_stream(const Place&) {
  return nullptr;
}

std::unique_ptr<FeedCopier> make_feed_copier(const Place& place) {
  return make_feed_copier_at_once(place);
}

std::unique_ptr<FeedCopier> make_value_copier(const Place& place) {
  return make_feed_copier_at_once(place);
}

std::unique_ptr<HostCopier> make_host_copier(const Place&) {
  return std::make_unique<HostCopierAtOnce>();
}

std::unique_ptr<DevicePoint> mark_device(const Place& place) {
  return point_reached(place);
}

void check_place(const Place& place) {
  built_in::device_allocator(place);
}
void enter_place(const Place&) {}
void* create_stream(const Place& place) {
  return new cuda::Stream(place);
}
void destroy_stream(const Place&, void* stream) noexcept {
  delete static_cast<cuda::Stream*>(stream);
}
void synchronize_stream(const Place&, void*) {}
bool begin_recording(const Place&, void* stream) {
  static_cast<cuda::Stream*>(stream)->record_step(true);
  g_recording = std::make_shared<testing::Work>();
  testing::record_stream(g_recording.get());
  return true;
}
std::shared_ptr<void> end_recording(const Place&, void* stream) {
  static_cast<cuda::Stream*>(stream)->record_step(false);
  testing::record_stream(nullptr);
  return std::exchange(g_recording, nullptr);
}
void run_recorded(const Place&, void* recorded, void* stream, uint64_t step) {
  static_cast<cuda::Stream*>(stream)->tell_step(step);
  testing::run_again(*static_cast<testing::Work*>(recorded));
}
std::shared_ptr<uint32_t> make_shared_words(const Place&, size_t count) {
  const auto words = std::make_shared<std::vector<uint32_t>>(count);
  return {words, words->data()};
}

}  // namespace built_in

}  // namespace fleet::fluid
