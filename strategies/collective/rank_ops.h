// Ops of which every rank gives one value a step and needs the result at once: c_allreduce_max,
// _min and _prod, c_allgather, c_reducescatter. Sums of gradients are GradientReducer's.
#pragma once

#include <optional>
#include <string_view>

#include "fluid/kernels/comm_runtime.h"
#include "strategies/collective/gradient_reducer.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

bool is_rank_op(std::string_view type);

// Carries such an op out; it blocks. Every rank calls it with the same type and shape; max, min and
// prod follow the tree over the ranks, so that all have the same bits, and NaN stays NaN. float32,
// float64, int32 and int64; c_reducescatter without int32, c_allgather any type. Throws
// ProgramError for another type, rows that do not divide into the ranks or nranks of another job,
// PeerError from communication.
void run_rank_op(const fluid::CommCall& call, transport::CollectiveCommunicator& communicator,
                 const GradientReducerOptions& options);

// The tensors of a communication op; throw ProgramError when there is none.
fluid::Tensor& comm_input(const fluid::CommCall& call, size_t at = 0);
// In the shape of the input when it is not the input's own variable.
fluid::Tensor& comm_output(const fluid::CommCall& call, const fluid::Tensor& input, size_t at = 0);
[[noreturn]] void fail_comm_value(const fluid::CommCall& call, std::string_view slot);
// None for a type that cannot be summed; with a call, ProgramError is thrown for it.
std::optional<transport::ElementType> element_type(fluid::DType dtype);
transport::ElementType comm_element_type(const fluid::Tensor& tensor, const fluid::CommCall& call);

}  // namespace fleet::strategies
