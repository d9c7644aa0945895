// Whole variables of a worker as memory of their parts on the servers.
#pragma once

#include <deque>
#include <vector>

#include "fluid/core/tensor.h"
#include "strategies/parameter_server/worker/exchange.h"

namespace fleet::strategies {

// Parts between whose rows others' lie have memory of their own meanwhile. Variables share their
// memory with this.
class RemoteValues {
 public:
  // A value that comes: the tensor becomes of the place's type and shape.
  void add_wanted(const RemoteTensor& place, fluid::Tensor& value);
  // A value that goes. Throws UsageError when it is not of the place's type and size.
  void add_given(const RemoteTensor& place, const fluid::Tensor& value);

  // What add_wanted and add_given made; valid as long as this lives.
  const std::vector<RemoteMemory>& memory() const { return memory_; }
  // Wanted values have come.
  void finish();

 private:
  struct SeparateRows {
    fluid::Tensor whole;
    fluid::Tensor rows;
    int64_t first = 0;
    int64_t stride = 1;
  };
  SeparateRows& add_separate(const RemoteTensor& place, const RemotePart& part,
                             fluid::Tensor whole);

  std::vector<RemoteMemory> memory_;
  std::vector<fluid::Tensor> given_;  // kept alive
  std::deque<SeparateRows> separate_;
};

}  // namespace fleet::strategies
