// Runs transpiled programs without the facade: gives an Executor the runtime that the programs of
// a DistributeTranspiler talk to.
#pragma once

#include <memory>

#include "base/log.h"
#include "fluid/executor/executor.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/runtime/strategy.h"

namespace fleet::strategies {

// `program` is a trainer's or a server's program as DistributeTranspiler made it; what it records
// of the job (endpoints, trainers, this trainer's index, mode, delay compensation, GEO's interval)
// configures the runtime. Deadlines and the job's secret come from the environment. The
// executor keeps the runtime; call stop_worker() on it when a trainer is done.
//
// Of a job without servers (modes "nccl2" and "collective"), `program` is the rank's startup
// program and enough, also when Paddle transpiled it: rank and endpoints are the attributes of its
// gen_nccl_id or c_gen_nccl_id. (A main program of mode "nccl2" records them as well.) Ranks meet
// over MPI or sockets, as FLEET_COLLECTIVES says, at the first program with communication ops; all
// its rings, hierarchical ones too, are one communicator. A step has as many logical shards as the
// program records, else one a rank; in mode "nccl2", whose main program has no op that reduces,
// CPU_NUM a rank. A rank must take a step before it may leave others that do.
//
// Throws UsageError for a program that was transpiled for neither, or where the process may not
// have as many open files as the job needs, PeerError when the job has no secret.
std::shared_ptr<StrategyRuntime> attach(
    fluid::Executor& executor, const fluid::Program& program,
    const RuntimeConfig& config = RuntimeConfig::from_environment(Environment::of_process()),
    Logger logger = {});

// For asynchronous jobs with more options than programs record, such as EASGD or a bound on
// staleness. Every process of the job gives the same. Delay compensation may be left out; the
// program records it. Throws UsageError when the program was transpiled for another mode, another
// interval of GEO or another delay compensation.
std::shared_ptr<StrategyRuntime> attach(
    fluid::Executor& executor, const fluid::Program& program, const AsyncOptions& options,
    const RuntimeConfig& config = RuntimeConfig::from_environment(Environment::of_process()),
    Logger logger = {});

// For programs that record no job, such as those that Paddle transpiled
// (fluid/io/paddle_program.h): the caller says what they lack. Needed are server_mode, endpoints
// and trainers, in a server its ps_endpoint and in a trainer its trainer_id; delay compensation and
// GEO's interval where the job has them. Throws UsageError when one of them is missing, or the
// program has a record of its own.
std::shared_ptr<StrategyRuntime> attach(
    fluid::Executor& executor, const fluid::Program& program, const fluid::DistributionInfo& job,
    const RuntimeConfig& config = RuntimeConfig::from_environment(Environment::of_process()),
    Logger logger = {});

}  // namespace fleet::strategies
