#include "strategies/parameter_server/worker/difference_exchange.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fluid/ops/distributed/trainer_program.h"
#include "strategies/parameter_server/worker/remote_places.h"
#include "strategies/parameter_server/worker/remote_values.h"

namespace fleet::strategies {

// Of the send that says that training starts; other sends end a local step.
struct DifferenceExchange::StartNotes final : ExchangeNotes {
  std::vector<RemoteTensor> missing;  // trained variables that no recv of the block brings
};

DifferenceExchange::DifferenceExchange(const ParameterServerConfig& config,
                                       const AsyncOptions& exchanged, const AsyncOptions& options,
                                       WorkerLoops loops, Logger logger)
    : BackgroundClient(config, exchanged, std::move(loops), std::move(logger)),
      local_(*this, options, config.worker_num) {}

void DifferenceExchange::stop() {
  local_.leave_all();
  BackgroundClient::stop();
  // Behind the leave: the job's others are not to fail for it.
  local_.check_lost();
}

void DifferenceExchange::enter_thread(uint32_t thread, fluid::Scope& scope,
                                      const fluid::Scope& parent) {
  BackgroundClient::enter_thread(thread, scope, parent);
  local_.begin_from(scope, parent);
}

// GEO's workers go on from what is saved, as those of a job do that begins with it.
void DifferenceExchange::begin_saving(fluid::Scope& scope) {
  local_.exchange_now(scope);
  BackgroundClient::begin_saving(scope);
  local_.take_values(scope);
}

void DifferenceExchange::prepare(const fluid::Block& block, BoundBlock& bound) {
  const fluid::Operator* start = fluid::read_trainer_block(block).start_notice;
  if (start == nullptr) return;
  std::set<RemoteVariable> received;
  for (const auto& [op, own] : bound) {
    if (own.kind != BoundOp::Kind::kReceive) continue;
    for (const RemoteTensor& tensor : own.tensors) {
      for (const auto& part : tensor.parts) received.insert(part.remote);
    }
  }
  auto notes = std::make_unique<StartNotes>();
  for (RemoteTensor& tensor : trained_variables(ready())) {
    const bool comes = std::all_of(tensor.parts.begin(), tensor.parts.end(), [&](const auto& part) {
      return received.contains(part.remote);
    });
    if (!comes) notes->missing.push_back(std::move(tensor));
  }
  bound.at(start).notes = std::move(notes);
}

Exchange::Token DifferenceExchange::send(const fluid::CommCall& call, const BoundOp& bound) {
  if (bound.notes != nullptr) {
    begin_training(call.scope, static_cast<const StartNotes&>(*bound.notes).missing);
  } else {
    count_step();
    local_.step(call.scope);
  }
  return nullptr;
}

// With the servers' tables too, which may be those of a saved model: workers that began with values
// of their own would never train these.
void DifferenceExchange::begin_training(fluid::Scope& scope,
                                        const std::vector<RemoteTensor>& missing) {
  RemoteValues values;
  for (const RemoteTensor& wanted : missing) {
    fluid::Value* value = scope.find(wanted.name);
    values.add_wanted(wanted, dense(value != nullptr ? *value : scope.var(wanted.name)));
  }
  if (!missing.empty()) fetch(transport::Phase::kReceiving, values.memory());
  values.finish();
  local_.begin(scope);
}

Exchange::Token DifferenceExchange::receive(const fluid::CommCall& call, const BoundOp& bound) {
  receive_initial(call, bound);
  return nullptr;
}

}  // namespace fleet::strategies
