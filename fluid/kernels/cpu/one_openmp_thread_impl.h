// Debian's oneDNN computes with OpenMP. Private: OpenMP's header is inside.
#pragma once

#include <omp.h>

namespace fleet::fluid::cpu {

// While it lives, OpenMP gives the calling thread no others: kernels have one thread. What the
// caller had set counts again afterwards.
class OneOpenMpThread {
 public:
  OneOpenMpThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneOpenMpThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_;
};

}  // namespace fleet::fluid::cpu
