// Programs saved for inference, in this library's form or Paddle's, and Paddle's
// parameter files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fluid/executor/executor.h"
#include "fluid/io/paddle_program.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::io {

inline constexpr const char* kModelFile = "model.json";

// Writes what `targets` need of the program, in its test form and with `feeds` given, and the
// parameters that this reads: model.json beside the files of fluid/io/persistables.h. Throws
// ProgramError for a name that the program lacks, or when the targets need data that is not fed,
// and UsageError in a worker where they need a table whose rows are on servers: there
// fleet::save_inference_model gathers them.
void save_inference_model(const std::filesystem::path& directory,
                          const std::vector<std::string>& feeds,
                          const std::vector<Variable>& targets, Executor& executor,
                          const Program& program = default_main_program());

// The same of a distributed job, of which `program` is the one before it was rewritten and
// `runtime` what this process's programs talk to. Every worker calls it between two steps; the
// job's values are gathered, and one worker writes. Throws PeerError besides.
void save_inference_model(const std::filesystem::path& directory,
                          const std::vector<std::string>& feeds,
                          const std::vector<Variable>& targets, Executor& executor,
                          const Program& program, CommRuntime& runtime);

// Names of Paddle's files within a directory; an empty name is what it writes by default:
// `__model__`, and one file per variable.
struct PaddleFiles {
  std::string model = {};
  std::string params = {};
};

// Reads such a directory, or one of Paddle (model.json missing, or names given), puts
// the parameters into the executor's scope and returns the program, what it is fed and what is
// fetched from it:
//   auto model = io::load_inference_model("dir", exe);
//   auto results = exe.run(model.program, {{model.feeds[0], x}}, {model.fetches[0]});
// `library`: the ops that the program may use, which it is given; null: this library's.
// Throws ResourceError for missing or damaged files, ProgramError for a program that this library
// cannot run; the scope is then as before.
InferenceModel load_inference_model(const std::filesystem::path& directory, Executor& executor,
                                    const PaddleFiles& files = {},
                                    std::shared_ptr<const ProgramOps> library = nullptr);

// The program's persistable variables (dense and selected rows) from what Paddle's
// save_persistables wrote: one file per variable, or all in the file `params`, sorted by name.
void load_paddle_persistables(const std::filesystem::path& directory, Executor& executor,
                              const Program& program, const std::string& params = {});
// Writes such files. Throws UsageError for a program with growing tables.
void save_paddle_persistables(const std::filesystem::path& directory, Executor& executor,
                              const Program& program, const std::string& params = {});
void save_paddle_persistables(const std::filesystem::path& directory, const Scope& scope,
                              const Program& program, const std::string& params = {});

}  // namespace fleet::fluid::io
