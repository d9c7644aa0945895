// What a server's program says about its variables and blocks: for servers of every mode.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/program/program.h"
#include "strategies/parameter_server/protocol/wire.h"

namespace fleet::strategies {

// Throws ProgramError: the program is not one for this very cluster.
[[noreturn]] void throw_server_program(std::string what, std::string where, std::string expected,
                                       std::string got);

// The tensor of that name when it has a value; null otherwise.
const fluid::Tensor* initialised(const fluid::Scope& scope, const std::string& name);
// Throws UsageError when a slice has no value yet.
void require_initial_value(const fluid::Scope& scope, const std::string& slice);

// "<name>:<block>" of an attribute of listen_and_serv. Throws ProgramError when there is no such
// block.
std::pair<std::string, int32_t> read_binding(const fluid::Program& program,
                                             const std::string& binding, const char* attribute);

// The catalogue's entry of a variable, which has a value in the scope.
CatalogueEntry catalogue_entry(const fluid::Program& program, const fluid::Scope& scope,
                               const std::string& name);

// Whether the op of a schedule makes the next count: of one counter, or of one for each trainer.
bool counts_steps(const fluid::Operator& op);
void set_number(fluid::Tensor& tensor, double value);

// Whether the gradients of that name come as rows.
bool has_row_gradient(const fluid::Program& program, const std::string& gradient);

// What a prefetch of rows of the table names it by; empty for what is not looked up so.
std::string lookup_of(const fluid::Program& program, const fluid::ListenAndServAttrs& listen,
                      const std::string& table);

// Gives the gradient of the entry a value of its kind and size.
void make_gradient(const CatalogueEntry& entry, fluid::Scope& scope);

// What the blocks write besides their slice and its gradient, and what outlives the update.
std::vector<std::string> updated_state(const fluid::Program& program, const fluid::Scope& scope,
                                       const std::vector<int32_t>& blocks, const std::string& value,
                                       const std::string& gradient);

}  // namespace fleet::strategies
