// Programs that compute what release 1.8.5 of Paddle computes, where this library departs.
#pragma once

#include "fluid/ops/op_schema.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

// Every op of the program that has the attribute `paddle_form` (docs/departures.md lists them)
// takes Paddle's form. Behind `minimize`, that goes for gradients and updates too; before it,
// gradients follow their ops, and each optimizer has an option of its own.
void take_paddle_forms(Program& program);

}  // namespace fleet::fluid
