// One oneDNN primitive with its operands: memory that kernels hand over lies plainly, the primitive
// may want it otherwise. Private: oneDNN's header is inside.
#pragma once

#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "fluid/kernels/kernel.h"

namespace fleet::fluid::cpu {

// The engine of all calls; made once, used by any thread.
const dnnl::engine& onednn_engine();

struct OneDnnOperand {
  int argument = 0;           // DNNL_ARG_…
  dnnl::memory::desc plain;   // as the kernel has it
  dnnl::memory::desc wanted;  // as the primitive has it
  bool output = false;
};

class OneDnnCall {
 public:
  OneDnnCall(dnnl::primitive primitive, const std::vector<OneDnnOperand>& operands,
             size_t scratchpad_bytes);

  // `data` in the order of the operands. Reorders what the primitive wants otherwise, in scratch
  // memory.
  void run(std::initializer_list<void*> data, Scratch& scratch);

 private:
  struct Slot {
    dnnl::memory plain;
    dnnl::memory wanted;
    dnnl::reorder reorder;
    bool moves = false;
    bool output = false;
    size_t bytes = 0;
  };

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<Slot> slots_;
  dnnl::memory scratchpad_;
  size_t scratchpad_bytes_ = 0;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace fleet::fluid::cpu
