#include "fluid/kernels/cpu/nn/register_nn.h"

namespace fleet::fluid::cpu {

void register_nn(KernelTable& table) {
  register_batch_norm(table);
  register_sync_batch_norm(table);
  register_conv(table);
  register_dropout(table);
  register_embedding(table);
  register_embedding_bags(table);
  register_growing_table(table);
  register_hierarchical_sigmoid(table);
  register_nce(table);
  register_pool(table);
  register_row_norm(table);
  register_selected_rows(table);
}

}  // namespace fleet::fluid::cpu
