#include "strategies/parameter_server/errors.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/program/program.h"

namespace fleet::strategies {

Status bad_frame(std::string what, std::string expected, std::string got, std::string_view where) {
  return {ErrorCode::kBadFrame,
          {.what = std::move(what),
           .where = std::string(where),
           .expected = std::move(expected),
           .got = std::move(got),
           .fix = "run the same program, configuration and version in every process"}};
}

Status ahead_of_server(std::string_view what, uint32_t worker, uint64_t collecting, uint64_t step) {
  return bad_frame(str_cat(what, " of worker ", worker, " is ahead of the server"),
                   str_cat("step ", collecting, " at most"), str_cat("step ", step));
}

void throw_worker_op(const fluid::Operator& op, std::string what, std::string expected,
                     std::string got) {
  throw_error(ErrorCode::kInvalidProgram,
              {.what = std::move(what),
               .where = op.to_string(),
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = "use the trainer program that the transpiler made, for this very cluster"});
}

void require_listen_and_serv(const fluid::Operator& op) {
  if (op.type == "listen_and_serv") return;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "a server's program has a communication op of a worker",
               .where = op.to_string(),
               .expected = "listen_and_serv",
               .got = op.type,
               .fix = "run the server program in a server, the trainer program in a worker"});
}

void throw_left(const fluid::Operator& op) {
  throw_error(ErrorCode::kPrecondition, {.what = "this worker has left its job",
                                         .where = op.to_string(),
                                         .expected = "a worker that trains",
                                         .got = "one that has called stop_worker()",
                                         .fix = "test and save before stop_worker()"});
}

void throw_out_of_turn(int shard) {
  throw_error(ErrorCode::kPrecondition,
              {.what = "a logical shard's gradient came out of turn",
               .where = "send",
               .expected = "this worker's shards, each once a step, in ascending order",
               .got = str_cat("shard ", shard),
               .fix = "run the program through the Executor, once a step"});
}

}  // namespace fleet::strategies
