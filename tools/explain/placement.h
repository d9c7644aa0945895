// Which part of what lives on which server, and what travels in a step.
#pragma once

#include "fluid/program/program.h"
#include "tools/explain/explain.h"
#include "tools/explain/explanation.h"
#include "transpiler/parameter_server/server_plan.h"

namespace fleet::explain {

// Fills Explanation::placement, servers (without traffic) and imbalance.
void place(const transpiler::ServerPlan& plan, const fluid::Program& main, Explanation& out);

// What a job with servers sends; `server_program`, any server's, tells what servers exchange.
// Fills Explanation::traffic and the traffic of its servers.
void count_server_traffic(const transpiler::ServerPlan& plan, const fluid::Program& main,
                          const fluid::Program& server_program, const ExplainOptions& options,
                          Explanation& out);

// What the ranks of a job without servers send. `trainer_program` is that of options.trainer.
void count_collective_traffic(const fluid::Program& trainer_program, const ExplainOptions& options,
                              Explanation& out);

// What may be wrong with where things are.
std::vector<Warning> find_warnings(const transpiler::ServerPlan& plan,
                                   const ExplainOptions& options, const Explanation& explanation);

}  // namespace fleet::explain
