// The CUDA kernels, family by family; each adds its rows to the table.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <memory>

#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/cuda/update_batch_impl.h"
#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid::cuda {

// What create_stream makes and KernelContext::stream() carries: the device's work stream, as one
// thread uses it, with a cuBLAS handle and scratch memory of its own.
class Stream {
 public:
  explicit Stream(const Place& place);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The device's work stream; while work is recorded, a stream that nobody else uses.
  RawStream raw() const { return stream_; }
  // Made at the first call.
  cublasHandle_t blas();
  void synchronize() const;
  // What one library (cuDNN) keeps for this stream.
  std::shared_ptr<void>& library() { return library_; }
  // Whether products and convolutions of float32 may be made of TF32, which is faster and has 10
  // bits of mantissa: FLAGS_enable_cublas_tensor_op_math, read once. UsageError for a value that is
  // none.
  static bool allows_tf32();
  // While work is recorded: where kernels find the step that they run in. Else null.
  const uint64_t* recorded_step() const { return recording_ ? step() : nullptr; }
  // From now on raw() is a stream to record on, or again the device's.
  void record_step(bool recording);
  // Before recorded work runs.
  void tell_step(uint64_t step);
  UpdateBatch& updates() { return updates_; }
  // Puts a copy on the stream, within the device's memory, or of host memory into it. With host
  // memory the caller may do what it wants when this returns; while a step is recorded it is an
  // error.
  void copy(const void* from, void* to, size_t bytes);
  void upload(const void* from, void* to, size_t bytes);
  // Memory of the device for one op's work, `count` elements; the next call of any op gets the
  // same.
  template <class T>
  T* scratch(int64_t count) {
    return reinterpret_cast<T*>(scratch_bytes(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  std::byte* scratch_bytes(size_t bytes);
  uint64_t* step() const { return reinterpret_cast<uint64_t*>(step_.data()); }

  void switch_streams();
  void set_blas_stream();

  Place place_;
  cudaStream_t stream_ = nullptr;
  cudaStream_t recording_stream_ = nullptr;  // made when first needed
  cublasHandle_t blas_ = nullptr;
  Buffer blas_memory_;
  Buffer scratch_;
  Buffer step_;
  UpdateBatch updates_;
  bool recording_ = false;
  std::shared_ptr<void> library_;
};

inline Stream& stream_of(const KernelContext& context) {
  return *static_cast<Stream*>(context.stream());
}

// Where an update goes, with others in a row or at once.
inline UpdateTarget target_of(const KernelContext& context) {
  Stream& stream = stream_of(context);
  stream.updates().begin(context.step());
  return {.stream = stream.raw(),
          .nonfinite = context.nonfinite_word(),
          .batch = &stream.updates(),
          .more_follow = context.more_follow()};
}
inline UpdateTarget target_at_once(const KernelContext& context) {
  return {.stream = stream_of(context).raw(), .nonfinite = context.nonfinite_word()};
}

// The pointer of an output, null when nobody wants it.
template <class T>
T* out_or_null(const KernelContext& context, int position) {
  return position >= 0 ? context.out<T>(position) : nullptr;
}

// The pointer of an input, null when the op has none.
template <class T>
const T* in_or_null(const KernelContext& context, int position) {
  return position >= 0 ? context.in<T>(position) : nullptr;
}

// All families but those of libraries that tests do not have on the host.
void register_all(KernelTable& table);

void register_averages(KernelTable& table);
void register_binary(KernelTable& table);
void register_conv(KernelTable& table);
void register_fill(KernelTable& table);
void register_index(KernelTable& table);
void register_loss(KernelTable& table);
void register_matmul(KernelTable& table);
void register_move(KernelTable& table);
void register_nn(KernelTable& table);
void register_optimizer(KernelTable& table);
void register_pointwise_loss(KernelTable& table);
void register_rows(KernelTable& table);
void register_sampled(KernelTable& table);
void register_sequence(KernelTable& table);
void register_similarity(KernelTable& table);
void register_sum(KernelTable& table);
void register_unary(KernelTable& table);
void register_update(KernelTable& table);

}  // namespace fleet::fluid::cuda
