#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {

void register_all(KernelTable& table) {
  register_averages(table);
  register_binary(table);
  register_fill(table);
  register_index(table);
  register_loss(table);
  register_matmul(table);
  register_move(table);
  register_nn(table);
  register_optimizer(table);
  register_pointwise_loss(table);
  register_sampled(table);
  register_similarity(table);
  register_sum(table);
  register_unary(table);
  register_update(table);
  register_rows(table);
  register_sequence(table);
}

}  // namespace fleet::fluid::cuda
