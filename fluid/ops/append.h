// Building programs with checks: what layers, backward, optimizers and transpilers call.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

// The ops that the block's program may use are those of op_table(program).

// Appends an op with the program's current role, role variables and name scope, after checking
// slots and attributes against the schema, filling in default attributes and inferring the shapes
// of its outputs, whose variables must exist. Throws ProgramError that names op, slot, attribute
// or variable, and leaves the block unchanged then.
const Operator& append_op(Block& block, Operator op);
// The same at a position; a role set in `op` other than kForward is kept.
const Operator& insert_op(Block& block, size_t position, Operator op);

// Every op of every block against its schema, names and shapes; throws for the first problem.
void verify(const Program& program);

}  // namespace fleet::fluid
