// Steps in LibTorch, in processes of their own (torch/torch_steps.cc).
#pragma once

#include <string>
#include <vector>

#include "benchmarks/harness/measure.h"

namespace fleet::benchmarks {

struct Step {
  std::string net;  // of nets.h
  int64_t rows = 0;
  int threads = 1;
};

// One way to run a step in LibTorch.
struct TorchSetup {
  std::string program;  // torch_steps or torch2_steps
  int own_threads = 1;
  int blas_threads = 1;
  bool openmp_blas = false;  // a BLAS that shares LibTorch's threads
  std::string form = "plain";
  // Of glibc's allocator: memory that tensors give back stays with the process, as users have it
  // who train on the CPU.
  bool keeps_memory = false;

  std::string text() const;
};

// Every way in which this machine's LibTorch can take such a step; none where it is not installed.
std::vector<TorchSetup> torch_setups(const Step& step);

Rate torch_rate(const Step& step, const TorchSetup& setup, double seconds);
// Of them, and of the best one of them with memory that is kept.
TorchSetup fastest(const Step& step, const std::vector<TorchSetup>& setups, double seconds);

// The most that the first steps take, beside what there was before.
double torch_peak_kilobytes(const Step& step, const TorchSetup& setup);
TorchSetup leanest(const Step& step, const std::vector<TorchSetup>& setups);

// What the note of a row says of them.
std::string setup_note(const TorchSetup& best, size_t of);

}  // namespace fleet::benchmarks
