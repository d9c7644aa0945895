// The CPU kernels of neural-net ops, family by family.
#pragma once

#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {

void register_batch_norm(KernelTable& table);
void register_sync_batch_norm(KernelTable& table);
void register_conv(KernelTable& table);
void register_dropout(KernelTable& table);
void register_embedding(KernelTable& table);
void register_embedding_bags(KernelTable& table);
void register_growing_table(KernelTable& table);
void register_hierarchical_sigmoid(KernelTable& table);
void register_nce(KernelTable& table);
void register_pool(KernelTable& table);
void register_row_norm(KernelTable& table);
void register_selected_rows(KernelTable& table);

}  // namespace fleet::fluid::cpu
