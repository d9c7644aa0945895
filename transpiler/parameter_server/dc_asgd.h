// Delay compensation in asynchronous jobs (DC-ASGD): the servers correct the gradient of a trainer
// that saw an older parameter. docs/transpiler.md has the ops of each form.
#pragma once

#include <string>

#include "fluid/ops/distributed/server_program.h"
#include "fluid/program/program.h"
#include "transpiler/config.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {

// "fc_w.block1.trainer_0_bak": the slice as a trainer last received it, of a table each row; the
// runtime keeps it.
std::string backup_name(const PlacedSlice& slice, int trainer);

// Throws Error (kNotSupported) for sparse gradients that the form does not take ("paddle").
void require_compensation(const fluid::Program& program, const TrainingOps& ops,
                          const DcAsgdForm& form);

// Declares the backups of a slice in the server's outermost block.
void declare_backups(fluid::Block& block, const PlacedSlice& slice, const fluid::VarDesc& param,
                     int trainers);

// Appends to an optimize block what corrects `grad`; returns the corrected gradient's name.
// `temporaries` counts the temporary variables of the program.
std::string append_compensation(fluid::Block& block, const PlacedSlice& slice,
                                const std::string& grad, const DcAsgdForm& form, int trainers,
                                int& temporaries);

// Appends to a server's startup what initialises backups and mean squares.
void append_backup_initialisers(fluid::Program& startup, const fluid::ServerProgram& server);

}  // namespace fleet::transpiler
