#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {

void register_kernels(KernelTable& table) {
  register_activation(table);
  register_compare(table);
  register_cross_entropy(table);
  register_elementwise(table);
  register_fill(table);
  register_index(table);
  register_manipulation(table);
  register_matmul(table);
  register_metric(table);
  register_optimizer(table);
  register_print(table);
  register_random(table);
  register_reduce(table);
  register_server_ops(table);
  register_regression_loss(table);
  register_similarity(table);
  register_softmax(table);
  register_sort(table);
  register_control(table);
  register_nn(table);
  register_sequence(table);
}

}  // namespace fleet::fluid::cpu
