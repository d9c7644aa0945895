// Saving and loading a program's persistable variables.
//
// A directory holds params.safetensors, files of each growing table, and manifest.json (format
// version; name, type and shape of every tensor, with the size and checksum of the parameter file;
// names of the tables' files, and how the tables are made). Equal values give equal bytes.
#pragma once

#include <filesystem>
#include <vector>

#include "fluid/executor/executor.h"
#include "fluid/io/safetensors.h"

namespace fleet::fluid {

namespace io {
class TableWriter;
}

inline constexpr int kManifestVersion = 1;
inline constexpr const char* kParameterFile = "params.safetensors";
inline constexpr const char* kManifestFile = "manifest.json";

// The persistable dense variables of block 0, sorted by name: parameters, states of optimizers,
// learning rates and counters.
std::vector<const VarDesc*> persistables(const Program& program);

// Throws UsageError for a table that the scope has only the shape of: its rows are on the servers
// of a distributed job.
void require_value_here(const Scope& scope, const std::string& name);

// Writes the current values, growing tables among them; throws ProgramError when one has none yet,
// ResourceError when the directory cannot be written, UsageError as above.
void save_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program);
void save_persistables(const Scope& scope, const std::filesystem::path& directory,
                       const Program& program);
// The same of values in the scope and growing tables of somebody's (fluid/io/growing_tables.h).
void save_persistables(const Scope& scope, const std::filesystem::path& directory,
                       const Program& program, io::TableWriter& tables);
// The same from values at hand, such as those gathered from servers.
void save_tensors(const std::filesystem::path& directory, const NamedTensors& tensors);

// Reads the values into the executor's scope; throws ResourceError for a missing or damaged file,
// ProgramError when a variable is missing or of another shape or type, UsageError for rows of a
// growing table with other states. Nothing is changed then. A growing table becomes a new object,
// with the options of the one that the scope had, or those that were saved.
// `keeper`: whose processes read growing tables themselves (CommRuntime::keeps_tables); or null.
void load_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program, CommRuntime* keeper = nullptr);
// All tensors of such a directory.
NamedTensors load_tensors(const std::filesystem::path& directory);

}  // namespace fleet::fluid
