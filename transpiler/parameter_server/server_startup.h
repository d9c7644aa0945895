// How a server begins.
#pragma once

#include "fluid/program/program.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {

// Initialises what `server_program` holds, by the initialisers of `startup`, the user's own
// startup program; slices with their own shapes. What is computed from other values is computed
// from whole ones, which the server makes for this. Throws ProgramError (kNotSupported) for a
// sliced variable whose initialiser cannot make a part of it.
fluid::Program make_server_startup(const fluid::Program& startup,
                                   const fluid::Program& server_program, const PassRunner& runner);

}  // namespace fleet::transpiler
