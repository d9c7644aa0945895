// What goes wrong between the processes of a job, said the same way wherever it is found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace fleet::fluid {
struct Operator;
}

namespace fleet::strategies {

// kBadFrame: a frame that processes of one job do not send each other.
Status bad_frame(std::string what, std::string expected, std::string got,
                 std::string_view where = "parameter server");
// kBadFrame: what ("a gradient", "a barrier") a worker sent for a step that is not collected yet,
// or after its last one.
Status ahead_of_server(std::string_view what, uint32_t worker, uint64_t collecting, uint64_t step);

// kInvalidProgram: an op that a worker cannot run with these servers.
[[noreturn]] void throw_worker_op(const fluid::Operator& op, std::string what, std::string expected,
                                  std::string got);
// kInvalidProgram unless the op is listen_and_serv, the only one that a server runs.
void require_listen_and_serv(const fluid::Operator& op);
// kPrecondition: an op of a worker that has stopped.
[[noreturn]] void throw_left(const fluid::Operator& op);
// kPrecondition: the gradient of a logical shard that is not the next one.
[[noreturn]] void throw_out_of_turn(int shard);

}  // namespace fleet::strategies
