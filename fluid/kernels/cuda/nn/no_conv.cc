// A build without cuDNN: convolutions run on the CPU.
#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {

void register_conv(KernelTable&) {}

}  // namespace fleet::fluid::cuda
