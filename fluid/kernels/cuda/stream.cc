// What streams are on a device and in tests on the host.
#include "base/error.h"
#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/core/device_memory.h"
#include "fluid/kernels/cuda/math/unary_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/device_kernels_impl.h"

namespace fleet::fluid {
namespace cuda {
namespace {

[[noreturn]] void throw_not_recorded() {
  throw_error(ErrorCode::kNotSupported,
              {.what = "a step is recorded that takes row numbers or sequences from the host",
               .where = "cuda_graph",
               .expected = "the same work in every step",
               .got = "what the host gives to each step anew",
               .fix = "leave cuda_graph unset for this program"});
}

}  // namespace

std::byte* Stream::scratch_bytes(size_t bytes) {
  if (bytes > scratch_.size()) scratch_ = Buffer(bytes, device_allocator(place_));
  return scratch_.data();
}

void Stream::copy(const void* from, void* to, size_t bytes) {
  if (bytes == 0 || from == to) return;
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_),
             "cudaMemcpyAsync");
}

// Pageable memory is read before the call returns.
void Stream::upload(const void* from, void* to, size_t bytes) {
  if (bytes == 0) return;
  if (recording_) throw_not_recorded();
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
}

void Stream::record_step(bool recording) {
  if (!step_) step_ = Buffer(sizeof(uint64_t), device_allocator(place_));
  recording_ = recording;
  switch_streams();
}

void Stream::tell_step(uint64_t now) {
  fill<int64_t>(raw(), static_cast<int64_t>(now), reinterpret_cast<int64_t*>(step()), 1);
}

}  // namespace cuda

void convert_half_on_device(const Tensor& from, Tensor& to, void* stream) {
  const cuda::RawStream raw = static_cast<cuda::Stream*>(stream)->raw();
  const bool widens = to.dtype() == DType::kFloat32;
  const bool brain = (widens ? from : to).dtype() == DType::kBFloat16;
  const int64_t n = from.numel();
  if (widens) {
    cuda::widen_halves(raw, brain, reinterpret_cast<const uint16_t*>(from.raw()),
                       reinterpret_cast<float*>(to.raw()), n);
  } else {
    cuda::round_to_halves(raw, brain, reinterpret_cast<const float*>(from.raw()),
                          reinterpret_cast<uint16_t*>(to.raw()), n);
  }
}

namespace built_in {

void note_nonfinite(const Tensor& tensor, uint32_t* word, void* stream) {
  const cuda::RawStream raw = static_cast<cuda::Stream*>(stream)->raw();
  if (tensor.dtype() == DType::kFloat32) {
    cuda::note_nonfinite(raw, reinterpret_cast<const float*>(tensor.raw()), word, tensor.numel());
  } else if (tensor.dtype() == DType::kFloat64) {
    cuda::note_nonfinite(raw, reinterpret_cast<const double*>(tensor.raw()), word, tensor.numel());
  }
}

bool redraws_when_repeated(std::string_view op) {
  return op == "dropout";
}

}  // namespace built_in

}  // namespace fleet::fluid
