// The block of a server's program that saves its tables (ListenAndServAttrs::checkpint_block_id).
#pragma once

#include <functional>
#include <string>

#include "fluid/core/scope.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/program/program.h"
#include "strategies/parameter_server/wire.h"

namespace fleet::strategies {

// Saves the rows of one of the block's tables as they are in the scope; empty for programs without
// such a block. The call throws UsageError for a table that the block does not save, ResourceError
// when the file cannot be written. Program and scope must outlive it.
std::function<void(const TableSnapshot&)> table_checkpoint(const fluid::Program& program,
                                                           const fluid::ListenAndServAttrs& listen,
                                                           const fluid::Scope& scope);

}  // namespace fleet::strategies
