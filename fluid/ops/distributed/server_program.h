// The program of a parameter server: a typed structure, the functions that write its parts as
// blocks and ops, and the one that reads them back. Transpilers write with these functions and
// servers work from the structure, so that nobody else has to know what the ops look like. They
// are Paddle's, so that its programs are read as well.
//
// Block 0 has listen_and_serv, whose attributes name the others:
//   schedule    at most one: the learning rates of a step
//   update      of one slice: [average of contributions] [delay compensation] update ops; or a
//               chain of such blocks, with an exchange between servers after each but the last
//   exchange    exchange_rows ops, then ops that every server computes alike
//   lookup      of one table: its rows for a prefetch
//   checkpoint  at most one: saves of the tables that are here
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/server_ops.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

// One slice of a parameter, or a statistic, and how what arrives changes it.
struct ServerSlice {
  std::string value;           // "fc_w.block1"
  std::string gradient;        // what its blocks update from: "fc_w@GRAD.block1", "fc_w.delta"
  bool rows = false;           // the gradient is selected rows
  bool plain = false;          // what comes is added to the value or replaces it: no update op
  std::vector<int32_t> chain;  // the blocks of its update, one or more
  // What each contributor of a step sends, which the chain begins to add up; empty: the gradient
  // comes as it is. `averages`: their mean, not their sum.
  std::vector<std::string> contributions;
  bool averages = false;
  std::string lookup;  // what a prefetch names its rows by; empty: none does
  // Delay compensation: the slice as each trainer last received it, and the mean of the gradient's
  // squares; empty without.
  std::vector<std::string> backups;
  std::string mean_square;
};

// A variable that servers put together from their parts.
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

struct ServerSchedule {
  int32_t block = -1;  // -1: none
  // Position in the block of the op that counts with kStepCounter; -1: none does.
  int counter = -1;
  bool sums_trainers = false;  // that op adds up what trainers count, which the server does itself
};

struct ServerProgram {
  ServerMode mode = ServerMode::kSync;
  std::string endpoint;
  int contributors = 1;
  std::vector<ServerSlice> slices;  // in the order of their blocks
  std::vector<ExchangeBlock> exchanges;
  ServerSchedule schedule;
  std::vector<std::string> saved_tables;
};

// Whether the program is a server's: one that serves.
bool is_server_program(const Program& program);

// Throws Error (kNotSupported) for a program of a synchronous server where the mode is not, or the
// other way round, and ProgramError when it is not one of a server with so many contributors (of a
// synchronous step logical shards, else trainers).
ServerProgram read_server_program(const Program& program, const Operator& listen, ServerMode mode,
                                  int contributors);

// The program as a server runs it, block by block: what it does itself is left out. Those are the
// sums over contributors, whose mean is over `contributors` of them; the exchanges; and the count
// of steps, but where a synchronous schedule increments it.
Program executable(const Program& program, const ServerProgram& server, int contributors);

// Throws ProgramError: the program is not one for this very job.
[[noreturn]] void throw_server_program(std::string what, std::string where, std::string expected,
                                       std::string got);

// Writers. Those that are given a block append to it; variables are the caller's to declare.

// gradient = mean of the contributions.
void append_average(Block& block, std::vector<std::string> contributions,
                    const std::string& gradient);
// value = value + difference.
void append_addition(Block& block, const std::string& value, const std::string& difference);
// The same of the rows of a growing table: difference has some of them.
void append_row_addition(Block& block, const std::string& table, const std::string& difference);
// value = what came.
void append_replacement(Block& block, const std::string& value, const std::string& gradient);
// backup = the one of the trainer whose gradient is applied (kTrainerId).
void append_backup(Block& block, std::vector<std::string> backups, const std::string& backup);
// What dc_compensate makes of a gradient; without a mean of squares where `mean_square` is empty.
struct Compensation {
  std::string value;
  std::string gradient;
  std::string backup;
  std::string mean_square;
  std::string out;
};
void append_compensation(Block& block, const Compensation& names, DcCompensateAttrs attrs);
// The op of an exchange block; X are the parts that server `own` makes.
void append_exchange(Block& block, const ExchangedRows& rows,
                     const std::vector<std::string>& endpoints, uint32_t own);
void append_table_lookup(Block& block, const std::string& table, const std::string& ids,
                         const std::string& rows);
void append_table_save(Block& block, const std::string& table);

// Parts of the attributes of listen_and_serv.
void bind_update(ListenAndServAttrs& listen, const std::string& gradient, int32_t block);
void bind_next(ListenAndServAttrs& listen, int32_t block, int32_t next);
void bind_rows(ListenAndServAttrs& listen, const std::string& gradient, const std::string& value);
void bind_lookup(ListenAndServAttrs& listen, const std::string& ids, int32_t block);
void bind_schedule(ListenAndServAttrs& listen, int32_t block);
void bind_exchange(ListenAndServAttrs& listen, int32_t block);
void bind_checkpoint(ListenAndServAttrs& listen, int32_t block);
// Block 0 serves. `inputs` may have "X", what the server receives.
void append_listen(Program& program, SlotMap inputs, const ListenAndServAttrs& listen);

}  // namespace fleet::fluid
