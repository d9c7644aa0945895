// Batch normalisation over all logical shards of a step, in whichever processes they are. It comes
// in parts, because shards meet only between ops:
//
//   sync_batch_norm_sums       X -> Sums [1 + 2c] float64: of this shard, the elements of a
//                              channel, each channel's sum, and each channel's sum of squares
//   shard_sum                  X float64 -> Out: added up over the shards of the step, by the tree
//                              of base/shard_tree.h; every shard gets the sum. The executor runs
//                              it.
//   sync_batch_norm            as batch_norm (norm.h), and Sums of all shards: the batch's mean and
//                              variance are theirs
//   sync_batch_norm_grad_sums  X, SavedMean, SavedVariance, Y@GRAD -> Sums [1 + 2c] float64, as
//                              above of Y@GRAD and of Y@GRAD times the normalised x; Scale@GRAD,
//                              Bias@GRAD (each optional), which are this shard's
//   sync_batch_norm_grad       X, Scale, SavedMean, SavedVariance, Y@GRAD, and Sums of all shards
//   ->
//                              X@GRAD
//
// A shard's gradients are those of its own loss, and the executor takes the mean over the shards,
// as with all ops.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

void add_sync_batch_norm_ops(OpTable& table);

// Turns every batch_norm of the program that normalises by its batch, and its gradient, into the
// ops above; those with is_test or use_global_stats stay. Returns how many. Throws UsageError
// (kNotSupported) for one in a block of control flow.
int synchronize_batch_norms(Program& program);

}  // namespace fleet::fluid
