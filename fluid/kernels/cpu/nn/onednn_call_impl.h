// One oneDNN primitive with its operands: memory that kernels hand over lies plainly, the primitive
// may want it otherwise. Private: oneDNN's header is inside.
#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <initializer_list>
#include <unordered_map>
#include <vector>

namespace fleet::fluid::cpu {

// The engine of all calls; made once, used by any thread.
const dnnl::engine& onednn_engine();

struct OneDnnOperand {
  int argument = 0;           // DNNL_ARG_…
  dnnl::memory::desc plain;   // as the kernel has it
  dnnl::memory::desc wanted;  // as the primitive has it
  bool output = false;
};

// Several of one primitive may run at once.
class OneDnnCall {
 public:
  OneDnnCall(const dnnl::primitive& primitive, const std::vector<OneDnnOperand>& operands,
             size_t scratchpad_bytes);

  // That run needs.
  size_t scratch_bytes() const { return scratch_bytes_; }
  // `data` in the order of the operands. Reorders what the primitive wants otherwise, in scratch
  // memory, which begins at a multiple of 64.
  void run(std::initializer_list<void*> data, std::byte* scratch);

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
  size_t scratch_bytes_ = 0;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// Moves numbers from one order to another.
class OneDnnReorder {
 public:
  OneDnnReorder() = default;
  OneDnnReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  // The orders differ.
  bool moves() const { return moves_; }
  void run(const void* from, void* to);

 private:
  bool moves_ = false;
  dnnl::stream stream_;
  dnnl::memory from_;
  dnnl::memory to_;
  dnnl::reorder reorder_;
};

}  // namespace fleet::fluid::cpu
