// The data lanes of a synchronous server: frames of workers in, state machine and state shards
// behind.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strategies/parameter_server/protocol/sync_server.h"
#include "strategies/parameter_server/server/server_lanes.h"

namespace fleet::strategies {

// Updates run where the last gradient came in: with several lanes beside each other, without the
// lock.
class SyncParameterServer final : public ServerLanes, private SyncServerSink {
 public:
  SyncParameterServer(const ParameterServerConfig& config, ServerModel model, ServingEvents events,
                      Logger logger = {}, std::shared_ptr<const SyncServerRules> rules = nullptr);

  // ServerLanes
  uint64_t step() const override { return core_.step(); }
  bool all_complete() const override { return core_.all_complete(); }
  std::vector<std::string> waits() const override;

 private:
  // SyncServerSink
  void begin_step(uint64_t step) override;
  bool update(uint32_t slice, const StepUpdate& update) override;
  void answer(const ServerAnswer& answer) override { send(answer); }
  void step_closed(uint64_t step) override;
  void all_complete() override;

  // ServerLanes
  transport::PayloadTarget prepare_push(transport::Session& session,
                                        const transport::FrameHeader& header,
                                        transport::ConstBytes control) override;
  Status handle(transport::Session& session, const transport::FrameHeader& header,
                transport::ConstBytes control, transport::MutableBytes payload) override;
  void drop_session(uint64_t session) override;
  Status get(GetCall call) override { return core_.get(std::move(call)); }
  Status complete(uint32_t worker, uint64_t step) override { return core_.complete(worker, step); }
  bool untouched() const override { return core_.untouched(); }

  SyncServerOptions sync_options(std::shared_ptr<const SyncServerRules> rules);
  Status handle_locked(transport::Session& session, const transport::FrameHeader& header,
                       transport::ConstBytes control, transport::MutableBytes payload);
  Status push(const Sender& sender, const PieceKey& key, transport::MutableBytes payload);
  Status take_part(transport::Session& session, const transport::FrameHeader& header,
                   transport::MutableBytes payload);
  // Runs updates that the lock must not be held for, without it.
  void run_updates(Lock& locked);
  void finish_update(uint32_t slice, const Status& outcome);

  struct StepOfSlice {
    uint32_t slice = 0;
    StepUpdate update;
  };

  ServerExchange exchange_;
  SyncServer core_;
  std::deque<StepOfSlice> updates_;
};

}  // namespace fleet::strategies
