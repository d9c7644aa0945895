// One server's data lanes: frames of workers in, state machine and state shards behind.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/state_shard.h"
#include "strategies/parameter_server/sync_server.h"
#include "strategies/parameter_server/wire.h"
#include "transport/rpc/server.h"

namespace fleet::strategies {

// What a server keeps, and how a step changes it.
struct ServerModel {
  Catalogue catalogue;
  // Of the trained entries, in the catalogue's order.
  std::vector<std::unique_ptr<StateShard>> shards;
  // Where every entry of the catalogue lives; addresses stay the same.
  std::vector<fluid::Tensor*> tensors;
  // Once per step, before its first update; may be empty.
  std::function<void(uint64_t step)> learning_rate;
};

// Belongs to the data loop, on which updates run as well.
class ParameterServer final : public transport::ServerHandler, private SyncServerSink {
 public:
  struct Events {
    std::function<void(uint64_t step)> on_step;
    std::function<void()> on_all_complete;
  };

  ParameterServer(const ParameterServerConfig& config, ServerModel model, Events events,
                  Logger logger = {});

  uint64_t step() const { return core_.step(); }
  bool all_complete() const { return core_.all_complete(); }
  const ServerModel& model() const { return model_; }
  // Whom the server waits for, one line each.
  std::vector<std::string> waits() const;

  // ServerHandler
  Loop* on_open(transport::Session& session) override;
  transport::PayloadTarget prepare_payload(transport::Session& session,
                                           const transport::FrameHeader& header,
                                           transport::ConstBytes control) override;
  void on_frame(transport::Session& session, const transport::FrameHeader& header,
                transport::ConstBytes control, transport::MutableBytes payload) override;
  void on_closed(transport::Session& session, const Status& why) override;

 private:
  struct Peer {
    transport::Session* session = nullptr;
    size_t unflushed = 0;
  };

  // SyncServerSink
  transport::MutableBytes gradient(uint32_t slice) override;
  void begin_step(uint64_t step) override;
  void update(uint32_t slice, uint64_t step, int shards) override;
  void answer(const GetCall& get, uint32_t variable, bool last) override;
  void answer_empty(const GetCall& get) override;
  void step_closed(uint64_t step) override;
  void all_complete() override;

  Status check_sender(const transport::Session& session,
                      const transport::FrameHeader& header) const;
  Status handle(transport::Session& session, const transport::FrameHeader& header,
                transport::ConstBytes control, transport::MutableBytes payload);
  Status handle_get(transport::Session& session, const transport::FrameHeader& header,
                    transport::ConstBytes control);
  Status handle_init(transport::Session& session, const transport::FrameHeader& header);
  transport::PayloadTarget prepare_initial(const transport::FrameHeader& header);

  const ParameterServerConfig config_;
  ServerModel model_;
  Events events_;
  Logger logger_;
  std::unordered_map<uint64_t, Peer> peers_;
  SyncServer core_;
};

}  // namespace fleet::strategies
