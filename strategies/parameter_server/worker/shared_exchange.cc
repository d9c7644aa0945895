#include "strategies/parameter_server/worker/shared_exchange.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/worker/remote_values.h"

namespace fleet::strategies {

SharedExchange::SharedExchange(const ParameterServerConfig& config, const AsyncOptions& options,
                               transport::TransportChoice transport, Logger logger)
    : options_(options), client_(config, options_, transport, std::move(logger)) {}

bool SharedExchange::enter_thread(uint32_t thread, fluid::Scope&, const fluid::Scope&) {
  if (thread < options_.trainer_threads) return true;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "there are more trainer threads than the job was configured for",
               .where = "trainer_threads",
               .expected = str_cat(options_.trainer_threads),
               .got = str_cat("thread ", thread),
               .fix = "set CPU_NUM to the number of threads"});
}

void SharedExchange::begin_step() {
  client_.ready();
  client_.set_phase(transport::Phase::kComputing);
}

void SharedExchange::receive_initial(const fluid::CommCall& call, const BoundOp& bound) {
  RemoteValues values;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    values.add_wanted(bound.tensors[i], dense(*call.outputs[i]));
  }
  client_.receive(values.memory());
  values.finish();
}

}  // namespace fleet::strategies
