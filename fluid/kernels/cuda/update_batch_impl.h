// What a stream keeps of updates that a later one of the same kind puts on it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

class UpdateBatch {
 public:
  // Updates in a list of one type.
  class List {
   public:
    virtual ~List() = default;
    // Puts them on the stream, and forgets them.
    virtual void put(RawStream stream) = 0;
  };

  // Updates of an earlier step, which failed before the last of them, are forgotten.
  void begin(uint64_t step) {
    if (std::exchange(step_, step) != step) list_.reset();
  }
  // The list that waits; one of another type is put on the stream first.
  template <class L>
  L& list(RawStream stream) {
    if (auto* const own = dynamic_cast<L*>(list_.get())) return *own;
    put(stream);
    list_ = std::make_unique<L>();
    return static_cast<L&>(*list_);
  }
  void put(RawStream stream) {
    if (list_ != nullptr) list_->put(stream);
  }

 private:
  uint64_t step_ = 0;
  std::unique_ptr<List> list_;
};

}  // namespace fleet::fluid::cuda
