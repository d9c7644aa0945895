// What a server's program says about its slices, read once, and the blocks that a step runs.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/executor/executor.h"
#include "fluid/ops/distributed/comm.h"
#include "strategies/parameter_server/server/parameter_watch.h"
#include "strategies/parameter_server/server/sync_parameter_server.h"

namespace fleet::strategies {

// The optimize block of one gradient, or a chain of them with an exchange between servers after
// each but the last (docs/transpiler.md, "Exchanges").
struct OptimizeBlock {
  std::vector<int32_t> chain;
  std::string gradient;  // what the block updates from: "fc_w@GRAD.block1"
  std::string value;     // the parameter's slice: "fc_w.block1"
  // Positions of the leading ops of the first block that add up and average the contributions; -1:
  // absent.
  int sum = -1;
  int scale = -1;
  // What comes is added to the value or replaces it: no update op tells whether it is finite.
  bool plain = false;
};

// One variable that an exchange puts together.
struct ExchangedRows {
  std::string whole;
  std::vector<std::string> parts;  // in the order of their rows
  std::vector<int64_t> rows;       // of each part
  std::vector<uint32_t> servers;   // that make it
};

struct ExchangeBlock {
  int32_t block = -1;
  std::vector<ExchangedRows> rows;
};

struct ServerProgram {
  fluid::ListenAndServAttrs listen;
  std::vector<OptimizeBlock> blocks;  // by name of the value
  std::vector<ExchangeBlock> exchanges;
};

// Throws ProgramError when the program is not one of a synchronous server with `shards`
// contributors.
ServerProgram read_server_program(const fluid::Program& program, const fluid::Operator& listen,
                                  int shards);

// Runs the blocks of a server's program on its scope: what comes after the sum over contributors,
// which the server makes itself. One thread at a time, but that shards of the model may be updated
// by several; program and scope must outlive it.
class ServerSteps {
 public:
  ServerSteps(const fluid::Program& program, ServerProgram parsed, int shards, fluid::Scope& scope);

  // The variables of the program as a server keeps them. The scope must have their initial
  // values. Shards and rate of the model call back into this object.
  ServerModel make_model();

 private:
  void run_rate();
  void start_counting();
  void run_slice(size_t block, const StepUpdate& update);
  void clear_parts(int32_t block);
  void share_between_blocks();
  void make_kept(const fluid::Block& block);
  Exchange make_exchange(size_t index);
  transport::MutableBytes place_of(const ExchangedRows& rows, size_t part);
  // Any thread.
  const fluid::Program& program_for(int shards);
  fluid::Program rewrite(int shards) const;

  const fluid::Program& program_;
  ServerProgram parsed_;
  int shards_;
  fluid::Scope& scope_;
  ParameterWatch watch_;
  fluid::Executor executor_;
  // One for each block: different slices may be updated by different threads at the same time.
  std::vector<fluid::Executor> slice_executors_;
  // By the number of shards that contributed.
  std::map<int, std::unique_ptr<fluid::Program>> programs_;
  std::mutex programs_mutex_;
  const fluid::Program* full_ = nullptr;
};

}  // namespace fleet::strategies
