// The update of one slice on a server: delay compensation, then SGD, by the very ops and kernels
// that an optimize block of a server program has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "fluid/core/tensor.h"
#include "fluid/executor/executor.h"
#include "fluid/program/program.h"
#include "strategies/parameter_server/async_options.h"

#include "experiments/testbed.h"

namespace fleet::experiments {

// Used by one thread.
class ServerUpdate {
 public:
  ServerUpdate(const strategies::DelayCompensationOptions& compensation, uint32_t workers,
               const Weights& initial);

  std::span<const float> weights() const { return weights_.values<float>(); }
  // A worker is sent the weights: what its gradients are made from until the next call.
  void sent(uint32_t worker);
  // The last argument's memory is read during the call.
  void apply(uint32_t worker, double rate, const Buffer& gradient);

 private:
  void build(const strategies::DelayCompensationOptions& compensation);

  fluid::Program program_;
  fluid::Executor executor_;
  fluid::Tensor weights_;
  std::vector<fluid::Tensor> backups_;  // by worker
};

}  // namespace fleet::experiments
