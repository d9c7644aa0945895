// The exchange of workers that train alone: differences of what they trained, every so many steps
// (local_training.h).
#pragma once

#include "strategies/parameter_server/worker/background_client.h"
#include "strategies/parameter_server/worker/local_training.h"

namespace fleet::strategies {

class DifferenceExchange final : public BackgroundClient {
 public:
  // `exchanged`: the options that the client works by; `options` as they were given.
  DifferenceExchange(const ParameterServerConfig& config, const AsyncOptions& exchanged,
                     const AsyncOptions& options, WorkerLoops loops, Logger logger);

  // Exchanges what the last steps changed. Executors that trained must still be there: UsageError
  // (kPrecondition), behind the leave, when steps are lost.
  void stop() override;

  void enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override;
  void leave_thread(fluid::Scope& scope, fluid::Scope& parent) override {
    local_.leave_to(scope, parent);
  }

  bool sends_gradients() const override { return false; }
  std::vector<std::shared_ptr<KeptRows>> kept_rows(fluid::Scope& scope,
                                                   const RemoteGrowingTables& tables) override {
    return local_.kept_rows(scope, tables);
  }
  void prepare(const fluid::Block& block, BoundBlock& bound) override;
  Token send(const fluid::CommCall& call, const BoundOp& bound) override;
  Token receive(const fluid::CommCall& call, const BoundOp& bound) override;
  void restarted(fluid::Scope& scope) override { local_.begin(scope); }
  void begin_saving(fluid::Scope& scope) override;
  std::vector<double> own_counts() override { return local_.counts(); }
  void set_own_counts(std::span<const double> counts) override { local_.set_counts(counts); }
  bool parameters_differ() const override { return options().mode == ServerMode::kEasgd; }

 private:
  struct StartNotes;

  void begin_training(fluid::Scope& scope, const std::vector<RemoteTensor>& missing);

  LocalTraining local_;
};

}  // namespace fleet::strategies
