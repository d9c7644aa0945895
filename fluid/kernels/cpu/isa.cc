#include "fluid/kernels/cpu/isa.h"

namespace fleet::fluid::cpu {

const IsaLoops& isa_loops() {
  static const IsaLoops& kBest = avx512_loops() != nullptr ? *avx512_loops() : *avx2_loops();
  return kBest;
}

}  // namespace fleet::fluid::cpu
