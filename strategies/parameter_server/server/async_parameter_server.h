// The data lanes of an asynchronous server: frames of workers in, state machine and state shards
// behind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strategies/parameter_server/protocol/async_server.h"
#include "strategies/parameter_server/server/server_lanes.h"

namespace fleet::strategies {

// What an asynchronous server keeps, and how an update changes it. Shards are updated from their
// gradient(), which the server puts there; StepUpdate::step is the version that the update makes,
// StepUpdate::shards the number of merged gradients. `learning_rate` is given the number of
// gradients that have come, this one included.
struct AsyncServerModel {
  ServerModel server;
  // A worker is sent this value of a slice, or it was assigned: what its gradients are made from
  // until the next call. The tensor pins the version. May be empty.
  std::function<void(uint32_t worker, uint32_t slice, const fluid::Tensor& value)> on_value;
  // The same of some of its rows, which rise; may be empty.
  std::function<void(uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                     const fluid::Tensor& value)>
      on_rows;
  // The next update is of a gradient of this worker; may be empty.
  std::function<void(uint32_t worker)> on_sender;
};

// Updates run where their gradients came in, one at a time: with the lock held.
class AsyncParameterServer final : public ServerLanes, private AsyncServerSink {
 public:
  AsyncParameterServer(const ParameterServerConfig& config, AsyncServerModel model,
                       ServingEvents events, Logger logger = {},
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
  bool untouched() const override { return core_.untouched(); }

  std::function<void(uint32_t worker, uint32_t slice, const fluid::Tensor& value)> on_value_;
  std::function<void(uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                     const fluid::Tensor& value)>
      on_rows_;
  std::function<void(uint32_t worker)> on_sender_;
  AsyncServer core_;
};

}  // namespace fleet::strategies
