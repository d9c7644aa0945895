#include <memory>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/core/device_memory.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/device_kernels_impl.h"

namespace fleet::fluid {
namespace cuda {
namespace {

constexpr size_t kBlasBytes = size_t{32} << 20;  // what cuBLAS recommends for Hopper

void check_blas(cublasStatus_t status, std::string_view call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_error(ErrorCode::kInternal,
              {.what = str_cat("a cuBLAS call failed: ", cublasGetStatusString(status)),
               .where = std::string(call),
               .expected = "CUBLAS_STATUS_SUCCESS",
               .got = cublasGetStatusName(status),
               .fix = "check the device's free memory, then report it with the whole message"});
}

}  // namespace

Stream::Stream(const Place& place) : place_(place), stream_(cuda_work_stream(place)) {}

Stream::~Stream() {
  library_.reset();
  if (blas_ != nullptr) cublasDestroy(blas_);
  cudaStreamSynchronize(stream_);
  if (recording_stream_ != nullptr) cudaStreamDestroy(recording_stream_);
}

void Stream::switch_streams() {
  if (recording_stream_ == nullptr) recording_stream_ = make_cuda_stream(place_);
  stream_ = recording_ ? recording_stream_ : cuda_work_stream(place_);
  if (blas_ != nullptr) set_blas_stream();
}

// Memory that stays where it is, so that products can be recorded.
void Stream::set_blas_stream() {
  check_blas(cublasSetStream(blas_, stream_), "cublasSetStream");
  if (!blas_memory_) blas_memory_ = Buffer(kBlasBytes, device_allocator(place_));
  check_blas(cublasSetWorkspace(blas_, blas_memory_.data(), kBlasBytes), "cublasSetWorkspace");
}

cublasHandle_t Stream::blas() {
  if (blas_ != nullptr) return blas_;
  cublasHandle_t handle = nullptr;
  check_blas(cublasCreate(&handle), "cublasCreate");
  blas_ = handle;
  set_blas_stream();
  // The same bits in every run.
  check_blas(
      cublasSetMathMode(blas_, allows_tf32() ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
      "cublasSetMathMode");
  check_blas(cublasSetAtomicsMode(blas_, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
  return blas_;
}

bool Stream::allows_tf32() {
  static const bool kAllows = [] {
    const char* const name = "FLAGS_enable_cublas_tensor_op_math";
    const auto text = Environment::of_process().get(name);
    if (!text) return false;
    if (const auto flag = parse_flag(*text)) return *flag;
    throw_error(ErrorCode::kEnvironment, {.what = "a variable has a value that cannot be used",
                                          .where = name,
                                          .expected = std::string(kFlagSpellings),
                                          .got = "'" + *text + "'",
                                          .fix = str_cat("correct or unset ", name)});
  }();
  return kAllows;
}

void Stream::synchronize() const {
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

}  // namespace cuda

void register_device_kernels(KernelTable& table) {
  cuda::register_all(table);
  cuda::register_conv(table);
}

namespace {

cudaStream_t cuda_stream(void* stream) {
  return static_cast<cudaStream_t>(static_cast<cuda::Stream*>(stream)->raw());
}

}  // namespace

namespace built_in {

void check_place(const Place& place) {
  device_allocator(place);
}

void enter_place(const Place& place) {
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice");
}

void* create_stream(const Place& place) {
  return new cuda::Stream(place);
}

void destroy_stream(const Place&, void* stream) noexcept {
  delete static_cast<cuda::Stream*>(stream);
}

void synchronize_stream(const Place&, void* stream) {
  static_cast<const cuda::Stream*>(stream)->synchronize();
}

bool begin_recording(const Place&, void* stream) {
  auto* const own = static_cast<cuda::Stream*>(stream);
  own->record_step(true);
  if (cudaStreamBeginCapture(cuda_stream(stream), cudaStreamCaptureModeThreadLocal) ==
      cudaSuccess) {
    set_recording_here(true);
    return true;
  }
  own->record_step(false);
  cudaGetLastError();  // the step is run op by op instead
  return false;
}

std::shared_ptr<void> end_recording(const Place&, void* stream) {
  set_recording_here(false);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  bool good = cudaStreamEndCapture(cuda_stream(stream), &graph) == cudaSuccess && graph != nullptr;
  static_cast<cuda::Stream*>(stream)->record_step(false);
  if (good) good = cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess;
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!good) {
    cudaGetLastError();  // the step is run op by op instead
    return nullptr;
  }
  return {executable,
          [](void* given) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(given)); }};
}

void run_recorded(const Place&, void* recorded, void* stream, uint64_t step) {
  static_cast<cuda::Stream*>(stream)->tell_step(step);
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recorded), cuda_stream(stream)),
             "cudaGraphLaunch");
}

// Mapped, so that nothing is copied in the steps in which no kernel writes it.
std::shared_ptr<uint32_t> make_shared_words(const Place& place, size_t count) {
  const CudaDeviceGuard guard(place);
  void* memory = nullptr;
  check_cuda(
      cudaHostAlloc(&memory, count * sizeof(uint32_t), cudaHostAllocMapped | cudaHostAllocPortable),
      "cudaHostAlloc");
  auto* const words = static_cast<uint32_t*>(memory);
  std::uninitialized_fill_n(words, count, 0U);
  return {words, [](uint32_t* given) { cudaFreeHost(given); }};
}

}  // namespace built_in

}  // namespace fleet::fluid
