// Rewrites a program that trains alone into one whose gradients are summed over ranks. Transpilers
// do so, and executors of programs that several processes run as replicas.
#pragma once

#include <string>

#include "fluid/program/program.h"

namespace fleet::fluid {

// The op that begins the backward pass.
bool is_loss_gradient(const Operator& op);

// After each op that begins the backward pass, its gradient times `factor`; ops that compress
// gradients are told.
void scale_loss_gradient(Program& program, double factor);

// c_sync_calc_stream and c_allreduce_sum of each gradient right after the op that finishes it,
// rings taking turns from the last gradient backwards, and c_sync_comm_stream of each ring before
// the first update. Gradients are those in the role_var of backward's ops.
void insert_rank_sums(Program& program, int rings);

// In the role of backward, unless it is said.
Operator make_sync_calc_stream(const std::string& variable);
Operator make_sync_comm_stream(const std::string& variable, int32_t ring, OpRole role);
// The value of rank 0, in the role of forward.
Operator make_rank_broadcast(const std::string& variable, int32_t ring);

}  // namespace fleet::fluid
