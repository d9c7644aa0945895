// What a stream keeps of ops, updates above all, that a later one of the same kind puts on it.
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
    if (std::exchange(step_, step) == step) return;
    list_.reset();
    is_open_ = false;
  }
  // Whether ops of the row have been kept, and none has put them on the stream.
  bool is_open() const { return is_open_; }
  // The list that waits; one of another type is put on the stream first.
  template <class L>
  L& list(RawStream stream) {
    auto* own = dynamic_cast<L*>(list_.get());
    if (own == nullptr) {
      put(stream);
      auto made = std::make_unique<L>();
      own = made.get();
      list_ = std::move(made);
    }
    is_open_ = true;
    return *own;
  }
  void put(RawStream stream) {
    if (std::exchange(is_open_, false)) list_->put(stream);
  }

 private:
  uint64_t step_ = 0;
  bool is_open_ = false;
  std::unique_ptr<List> list_;
};

}  // namespace fleet::fluid::cuda
