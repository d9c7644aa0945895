// The CPU kernels, family by family; each adds its rows to the table.
#pragma once

#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid::cpu {

void register_kernels(KernelTable& table);

void register_activation(KernelTable& table);
void register_smooth_activation(KernelTable& table);
void register_compare(KernelTable& table);
void register_cross_entropy(KernelTable& table);
void register_elementwise(KernelTable& table);
void register_elementwise_grad(KernelTable& table);
void register_fill(KernelTable& table);
void register_index(KernelTable& table);
void register_manipulation(KernelTable& table);
void register_matmul(KernelTable& table);
void register_metric(KernelTable& table);
void register_control(KernelTable& table);
void register_nn(KernelTable& table);
void register_sequence(KernelTable& table);
void register_optimizer(KernelTable& table);
void register_average(KernelTable& table);
void register_norm_optimizer(KernelTable& table);
void register_sparse_clip(KernelTable& table);
void register_dgc(KernelTable& table);
void register_growing_table_update(KernelTable& table);
void register_print(KernelTable& table);
void register_random(KernelTable& table);
void register_reduce(KernelTable& table);
void register_server_ops(KernelTable& table);
void register_regression_loss(KernelTable& table);
void register_similarity(KernelTable& table);
void register_softmax(KernelTable& table);
void register_sort(KernelTable& table);

// Adds one kernel, a function template of the element type, for each type.
template <class... Types, class Add>
void for_types(Add add) {
  (add(std::type_identity<Types>{}), ...);
}

}  // namespace fleet::fluid::cpu
