#include "base/error.h"
#include "base/strings.h"
#include "transport/nccl/cuda_queue.h"

namespace fleet::transport {

std::unique_ptr<DeviceQueue> make_cuda_queue(int device, void*) {
  throw_error(ErrorCode::kNotSupported, {.what = "this build has no CUDA streams",
                                         .where = str_cat("cuda:", device),
                                         .expected = "a build with CUDA",
                                         .got = "one without",
                                         .fix = "build with the preset cuda"});
}

}  // namespace fleet::transport
