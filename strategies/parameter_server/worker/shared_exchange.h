// What exchanges with trainer threads have in common: their requests go through one client, which
// works while the threads compute.
#pragma once

#include <string>

#include "strategies/parameter_server/worker/background_client.h"
#include "strategies/parameter_server/worker/exchange.h"

namespace fleet::strategies {

class SharedExchange : public Exchange {
 public:
  void start() override { client_.start(); }
  const ServerClient& ready() override { return client_.ready(); }
  void stop() override { client_.stop(); }
  bool stopped() const override { return client_.stopped(); }
  void abort(const Status& why, uint64_t step) override { client_.abort(why, step); }
  void barrier(const std::string& name) override { client_.barrier(name); }
  std::vector<double> all_reduce(std::span<const double> values) override {
    return client_.all_reduce(values);
  }
  uint64_t steps() const override { return client_.steps(); }

  // UsageError for more threads than the job was told of.
  bool enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) override;

  void begin_step() override;
  void end_step() override {}

  void request(transport::Phase phase, std::string_view what, const Ask& ask) override {
    client_.request(phase, what, ask);
  }
  void fetch(transport::Phase, std::span<const RemoteMemory> values) override {
    client_.receive(values);
  }
  void assign(std::span<const RemoteMemory> values) override { client_.assign(values); }
  void drain() override { client_.synchronize(); }

 protected:
  SharedExchange(const ParameterServerConfig& config, const AsyncOptions& options,
                 transport::TransportChoice transport, Logger logger);

  // Puts the servers' values of an op's variables into its outputs.
  void receive_initial(const fluid::CommCall& call, const BoundOp& bound);

  const AsyncOptions options_;
  BackgroundClient client_;
};

}  // namespace fleet::strategies
