// The data lanes of an asynchronous server: frames of workers in, state machine and state shards
// behind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strategies/parameter_server/protocol/async_server.h"
#include "strategies/parameter_server/server/server_lanes.h"

namespace fleet::strategies {

// Updates run where their gradients came in, one at a time: with the lock held.
class AsyncParameterServer final : public ServerLanes, private AsyncServerSink {
 public:
  AsyncParameterServer(const ParameterServerConfig& config, ServerModel model, ServingEvents events,
                       Logger logger = {},
                       std::function<void(const AsyncEvent&)> on_event = nullptr,
                       std::shared_ptr<const AsyncServerRules> rules = nullptr);

  const AsyncServer& core() const { return core_; }

  // ServerLanes. Steps are gradients that have come.
  uint64_t step() const override { return core_.gradients(); }
  bool all_complete() const override { return core_.all_complete(); }
  std::vector<std::string> waits() const override;

 private:
  // AsyncServerSink
  void begin_clock(uint64_t gradients) override;
  void update(const AsyncUpdate& update, const Buffer& gradient) override;
  void update_rows(const AsyncUpdate& update, const RowContribution& gradient) override;
  void answer(const ServerAnswer& answer) override;
  void all_complete() override;

  void apply(const AsyncUpdate& update, fluid::Value gradient);

  // ServerLanes
  transport::PayloadTarget prepare_push(transport::Session& session,
                                        const transport::FrameHeader& header,
                                        transport::ConstBytes control) override;
  Status handle(transport::Session& session, const transport::FrameHeader& header,
                transport::ConstBytes control, transport::MutableBytes payload) override;
  void drop_session(uint64_t session) override;
  Status get(GetCall call) override { return core_.get(std::move(call)); }
  Status complete(uint32_t worker, uint64_t clock) override {
    return core_.complete(worker, clock);
  }
  bool untouched() const override { return core_.untouched(); }

  AsyncServerOptions async_options(std::function<void(const AsyncEvent&)> on_event,
                                   std::shared_ptr<const AsyncServerRules> rules) const;

  AsyncServer core_;
};

}  // namespace fleet::strategies
