#include "fluid/executor/parallel_executor.h"

#include "base/error.h"

namespace fleet::fluid {
namespace {

Scope& scope_of(const ParallelExecutorOptions& options, Scope* shared) {
  Scope* scope = options.scope != nullptr ? options.scope : shared;
  if (scope != nullptr) return *scope;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "a ParallelExecutor needs the scope that has the parameters",
               .where = "ParallelExecutorOptions.scope",
               .expected = "the scope of the executor that ran the startup program",
               .got = "none",
               .fix = "give &exe.scope(), or share_vars_from"});
}

const Program& program_of(const ParallelExecutorOptions& options) {
  return options.main_program != nullptr ? *options.main_program : default_main_program();
}

}  // namespace

ParallelExecutor::ParallelExecutor(const ParallelExecutorOptions& options)
    : scope_(scope_of(options, options.share_vars_from == nullptr
                                   ? nullptr
                                   : &options.share_vars_from->scope_)),
      executor_(options.use_cuda ? CUDAPlace(0) : CPUPlace(), scope_),
      program_(program_of(options)) {
  DataParallelOptions parallel{.build_strategy = options.build_strategy,
                               .exec_strategy = options.exec_strategy};
  parallel.build_strategy.num_trainers = options.num_trainers;
  parallel.build_strategy.trainer_id = options.trainer_id;
  if (options.share_vars_from != nullptr) {
    parallel.share_vars_from = &options.share_vars_from->program_;
  }
  program_.with_data_parallel(options.loss_name, std::move(parallel));
}

ParallelExecutor::~ParallelExecutor() = default;

std::vector<Tensor> ParallelExecutor::run(const std::vector<Fetch>& fetch, const Feed& feed) {
  return executor_.run(program_, feed, fetch);
}

}  // namespace fleet::fluid
