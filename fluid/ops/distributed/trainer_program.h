// The programs of trainers, and of ranks: the ops by which they send, receive and sum, as functions
// that write them and a structure that is read back from them. Transpilers write with these
// functions and the runtimes of workers work from the structure, so that nobody else has to know
// what the ops look like. They are Paddle's, so that its programs are read as well.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fluid/ops/distributed/comm.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

// A recv, and the variable that its outputs are the rows of, one after the other; empty: none.
struct TrainerReceive {
  const Operator* op = nullptr;
  std::string whole;
};

// A block of a trainer's program. Its ops must outlive it.
struct TrainerBlock {
  std::vector<TrainerReceive> receives;  // in order
  bool fetch_barrier = false;            // one stands behind them
  const Operator* start_notice = nullptr;
};
TrainerBlock read_trainer_block(const Block& block);

// What a rank's program does with others. The program must outlive it.
struct RankSum {
  const VarDesc* var = nullptr;
  bool at_once = false;                   // shard_sum, whose result the next op needs
  const Operator* compression = nullptr;  // the op dgc that makes it

  bool operator==(const RankSum&) const = default;
};
struct RankProgram {
  std::vector<RankSum> sums;          // over the ranks, in the order of a step
  bool sums_gradients = false;        // all of them: no parameter changes before the first sum
  const Operator* average = nullptr;  // c_local_sgd of the global block
};
// Throws Error (kUnknownName) when the program sums a variable that it does not declare.
RankProgram read_rank_program(const Program& program);

// Where a program that was made for one rank of a job runs, as its ops that make communicators say,
// else as it records.
struct RankPlace {
  int32_t rank = 0;
  std::vector<std::string> endpoints;  // by rank; empty where the program does not say them
  int32_t shards = 0;                  // of a step; 0: the program does not say
  // nccl2: nothing in the program reduces, its executor does (ParallelExecutor, CompiledProgram).
  bool executor_reduces = false;
  // c_comm_init_all: the ranks are devices of this process.
  bool in_process = false;
  // For sums on devices: communicators that take turns, and whether groups of so many ranks (0:
  // those of a machine) are summed first.
  int32_t communicators = 1;
  bool hierarchical = false;
  int32_t group_ranks = 0;
};
// None for a program that was not made for ranks. Throws Error (kInvalidProgram) when its ops name
// different places, or a rank that has no endpoint.
std::optional<RankPlace> read_rank_place(const Program& program);

// Writers. Operators that are made have the role of communication, but for those of ranks and
// make_join, whose role is the caller's.

// recv
Operator make_receive(std::vector<std::string> outputs, AttributeMap attrs);
// The rows of the parts, one after the other, in `whole`.
Operator make_join(std::vector<std::string> parts, const std::string& whole);
Operator make_send_barrier(SendBarrierAttrs attrs, std::vector<std::string> inputs,
                           std::vector<std::string> outputs);
Operator make_fetch_barrier(FetchBarrierAttrs attrs, std::vector<std::string> inputs,
                            std::vector<std::string> outputs);
// A send that carries no gradients: a local step is over, in which rows of the tables were trained.
Operator make_step_notice(std::vector<std::string> rows, std::vector<std::string> tables,
                          const std::string& control);
// Training starts from what the block received; kParamInit is the caller's to declare.
Operator make_start_notice(const std::string& control);
// X = the sum of X over the ranks.
Operator make_rank_sum(const std::string& variable, int32_t ring);
// Now and then, X = its mean over the ranks; without `loss` or `learning_rate` where it is empty.
Operator make_rank_average(const std::vector<std::string>& variables, const std::string& loss,
                           std::vector<std::string> learning_rate);

}  // namespace fleet::fluid
