// Variables of a server's program, as its scope has them: for servers of every mode.
#pragma once

#include <string>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/ops/distributed/server_program.h"
#include "fluid/program/program.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "strategies/parameter_server/server/state_shard.h"

namespace fleet::strategies {

// The tensor of that name when it has a value; null otherwise.
const fluid::Tensor* initialised(const fluid::Scope& scope, const std::string& name);
// Throws UsageError when a slice, a tensor or a growing table, has no value yet.
void require_initial_value(const fluid::Scope& scope, const std::string& slice);

// The parameter index's entry of a variable, which has a value in the scope.
ParameterEntry parameter_entry(const fluid::Program& program, const fluid::Scope& scope,
                               const std::string& name);

void set_number(fluid::Tensor& tensor, double value);

// Gives the gradient of the entry a value of its kind and size.
void make_gradient(const ParameterEntry& entry, fluid::Scope& scope);

// What the blocks write besides their slice and its gradient, and what outlives the update.
std::vector<std::string> updated_state(const fluid::Program& program, const fluid::Scope& scope,
                                       const std::vector<int32_t>& blocks, const std::string& value,
                                       const std::string& gradient);

// What a block of the slice's update changes of its value. The program is the executable one.
ValueChange change_by(const fluid::Program& program, int32_t block,
                      const fluid::ServerSlice& slice);

}  // namespace fleet::strategies
