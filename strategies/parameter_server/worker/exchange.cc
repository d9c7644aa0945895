#include "strategies/parameter_server/worker/exchange.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/worker/background_exchange.h"
#include "strategies/parameter_server/worker/difference_exchange.h"
#include "strategies/parameter_server/worker/in_step_exchange.h"

namespace fleet::strategies {
namespace {

// Threads of a half-asynchronous worker merge one gradient each, whatever is asked for; whoever
// waits for values in step asks for them there.
AsyncOptions resolved(AsyncOptions options) {
  validate(options);
  if (options.staleness_bound == 0U) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a staleness bound of 0 is synchronous training",
                 .where = "staleness_bound",
                 .expected = "1 or more, or none",
                 .got = "0",
                 .fix = "use the programs and the runtime of SyncStrategy"});
  }
  if (options.mode == ServerMode::kHalfAsync || sends_differences(options.mode)) {
    options.max_merge_var_num = options.send_queue_size = options.trainer_threads;
  }
  // Differences add up, whichever thread makes them.
  if (sends_differences(options.mode)) options.merge_by_sum = true;
  if (options.mode != ServerMode::kAsync || options.staleness_bound) {
    options.independent_recv = false;
  }
  return options;
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(const ParameterServerConfig& config,
                                        const AsyncOptions& options, WorkerLoops loops,
                                        Logger logger) {
  if (is_synchronous(options.mode))
    return std::make_unique<InStepExchange>(config, std::move(loops), logger);
  const AsyncOptions exchanged = resolved(options);
  if (sends_differences(options.mode)) {
    return std::make_unique<DifferenceExchange>(config, exchanged, options, std::move(loops),
                                                std::move(logger));
  }
  return std::make_unique<BackgroundExchange>(config, exchanged, std::move(loops),
                                              std::move(logger));
}

void check_gradient(const fluid::Operator& op, const RemoteTensor& expected,
                    const fluid::Value& gradient) {
  const auto mismatch = [&op](std::string what, std::string wanted, std::string got) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = std::move(what),
                 .where = op.to_string(),
                 .expected = std::move(wanted),
                 .got = std::move(got),
                 .fix = "transpile every role of the job from the same program"});
  };
  const bool rows = std::holds_alternative<fluid::SelectedRows>(gradient);
  const auto form = [](bool sparse) { return sparse ? "rows" : "a dense tensor"; };
  if (rows != expected.rows) {
    mismatch("a gradient and its slices on the servers differ in form", form(expected.rows),
             form(rows));
  }
  const auto* tensor = std::get_if<fluid::Tensor>(&gradient);
  const uint64_t bytes = tensor == nullptr ? 0 : tensor->bytes();
  if (!rows && (tensor == nullptr || bytes != expected.bytes())) {
    mismatch("a gradient and its slices on the servers differ in size",
             str_cat(expected.bytes(), " bytes"), str_cat(bytes, " bytes"));
  }
}

}  // namespace fleet::strategies
