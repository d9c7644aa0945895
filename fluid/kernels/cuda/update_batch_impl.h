// What a stream keeps of updates that a later one of the same kind puts on it.
#pragma once

#include <cstdint>
#include <memory>
#include <typeindex>
#include <utility>

namespace fleet::fluid::cuda {

class UpdateBatch {
 public:
  // Updates of an earlier step, which failed before the last of them, are forgotten.
  void begin(uint64_t step) {
    if (std::exchange(step_, step) != step) kept_.reset();
  }
  // The updates that wait, in a list of type L; updates in a row are of one type.
  template <class L>
  L& list() {
    if (kept_ == nullptr || type_ != typeid(L)) kept_ = std::make_shared<L>();
    type_ = typeid(L);
    return *static_cast<L*>(kept_.get());
  }

 private:
  uint64_t step_ = 0;
  std::type_index type_ = typeid(void);
  std::shared_ptr<void> kept_;
};

}  // namespace fleet::fluid::cuda
