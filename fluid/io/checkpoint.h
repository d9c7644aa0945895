// Saving and loading the persistable variables of a training job, local or distributed: the same
// call in every process, the same files from every mode.
#pragma once

#include <filesystem>

#include "fluid/executor/executor.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::io {

// Writes the parameters and states of the job that `program` trains (fluid/io/persistables.h says
// what the files are). In a distributed job every worker calls it between two steps; values that
// servers hold are gathered, and one worker writes. Throws ResourceError, PeerError, ProgramError.
void save_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program = default_main_program());

// The opposite, after the startup program and before the first step. Every worker calls it.
void load_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program = default_main_program());

// For servers, whose startup `program` has been run on `scope`: puts there the parts that its
// variables are of what a checkpoint holds, which a job of any number of servers, or a local one,
// may have written. A distributed table that is not among its parameters is read from the files
// that servers wrote of it (fluid/io/table_files.h).
void load_slices(const Program& program, Scope& scope, const std::filesystem::path& directory);

}  // namespace fleet::fluid::io
