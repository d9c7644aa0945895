#include "base/strings.h"
#include "transport/nccl/nccl.h"

namespace fleet::transport {

Result<std::shared_ptr<Nccl>> load_nccl(const std::string& library) {
  return Status(ErrorCode::kNotSupported,
                {.what = "this build has no NCCL",
                 .where = library,
                 .expected = "a build that found nccl.h and the CUDA toolkit",
                 .got = "a build without them, or with NCCL switched off",
                 .fix = "install NCCL's development files and build again (docs/gpu.md)"});
}

}  // namespace fleet::transport
