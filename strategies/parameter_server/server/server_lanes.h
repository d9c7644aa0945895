// What parameter servers of every kind do on their data lanes: they know who may speak, tell the
// parameter index, take initial values, and answer with published versions.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/files/file_system.h"
#include "base/log.h"
#include "base/post_queue.h"
#include "base/process/background.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/protocol/row_contributions.h"
#include "strategies/parameter_server/protocol/server_calls.h"
#include "strategies/parameter_server/protocol/server_exchange.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "strategies/parameter_server/server/checkpoint/save_folders.h"
#include "strategies/parameter_server/server/checkpoint/server_part.h"
#include "strategies/parameter_server/server/checkpoint/table_saves.h"
#include "strategies/parameter_server/server/parameter_watch.h"
#include "strategies/parameter_server/server/state_shard.h"
#include "strategies/parameter_server/server/table_orders.h"
#include "transport/rpc/incarnations.h"
#include "transport/rpc/long_message.h"
#include "transport/rpc/server.h"

namespace fleet::strategies {

// What a server keeps, and how a step changes it. An asynchronous server updates its shards from
// their gradient(), which it puts there; StepUpdate::step is the version that the update makes,
// StepUpdate::shards the number of merged gradients.
struct ServerModel {
  ParameterIndex parameter_index;
  // Of the trained entries, in the parameter index's order.
  std::vector<std::unique_ptr<StateShard>> shards;
  // Where every entry of the parameter index lives; addresses stay the same. Of a growing table, a
  // tensor without memory.
  std::vector<fluid::Tensor*> tensors;
  // Once per step, before its first update; of an asynchronous server, with the number of gradients
  // that have come, the next one included. May be empty.
  std::function<void(uint64_t step)> learning_rate;
  // So many steps of the job are over before the first update. May be empty.
  std::function<void(uint64_t steps)> steps_before;
  // Tables that workers may have saved, by name.
  std::vector<std::string> saved_tables;
  // Of a synchronous step, between the stages of its updates.
  std::vector<StepExchange> exchanges;
  // Told by updates; null: nobody is. Outlives the model.
  ParameterWatch* watch = nullptr;

  // Of an asynchronous server; each may be empty.
  // A worker is sent this value of a slice, or it was assigned: what its gradients are made from
  // until the next call. The tensor pins the version.
  std::function<void(uint32_t worker, uint32_t slice, const fluid::Tensor& value)> on_value;
  // The same of some of its rows, strictly ascending.
  std::function<void(uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                     const fluid::Tensor& value)>
      on_rows;
  // The next update is of a gradient of this worker.
  std::function<void(uint32_t worker)> on_sender;
};

struct ServingEvents {
  std::function<void(uint64_t step)> on_step;
  std::function<void()> on_all_complete;
  // Carries frames to another server; needed for models with exchanges.
  ServerExchange::Send send_to_server;
  // Runs `work` in another thread, then `done` on the data loop. Empty: there is none.
  std::function<void(std::function<void()> work, std::function<void()> done)> offload;
  // Runs `work` on the data loop, behind what waits there. Empty: at once.
  std::function<void(std::function<void()> work)> run_later;
  // This server cannot go on after so many steps, with itself to blame.
  std::function<void(const Status& why, uint64_t step)> on_failure;
  // Where checkpoints are written, and who does it.
  FileSystem* files = &system_files();
  std::function<std::unique_ptr<Background>()> make_background = make_background_thread;
  // By lane: where its sessions live. Empty: one lane, or all of them, on the data loop.
  std::vector<Loop*> lane_loops;
};

// The data lanes of one server, whatever the mode. The sessions of a lane, and what they have half
// received, belong to the lane's loop; everything else is guarded by one lock, which a lane holds
// while it looks at a frame. Frames come in, are verified and leave without it. Events are told by
// the thread that makes them, with the lock held.
class ServerLanes : public transport::ServerHandler {
 public:
  // Updates done, by the mode's own count. Any thread.
  virtual uint64_t step() const = 0;
  // Every worker contributes no more, and what it sent is applied. Any thread.
  virtual bool all_complete() const = 0;
  // Whom the server waits for, one line each. Any thread.
  virtual std::vector<std::string> waits() const = 0;
  const ServerModel& model() const { return model_; }

  // ServerHandler
  Status admit(const transport::Hello& peer) override { return incarnations_.admit(peer); }
  transport::PayloadTarget prepare_payload(transport::Session& session,
                                           const transport::FrameHeader& header,
                                           transport::ConstBytes control) override;
  Loop* on_open(transport::Session& session) override;
  void on_frame(transport::Session& session, const transport::FrameHeader& header,
                transport::ConstBytes control, transport::MutableBytes payload) override;
  void on_closed(transport::Session& session, const Status& why) override;

 protected:
  ServerLanes(const ParameterServerConfig& config, ServerModel model, ServingEvents events,
              Logger logger);

  using Lock = std::unique_lock<std::recursive_mutex>;
  Lock lock() const { return Lock(mutex_); }
  // Sums and updates go on in several threads.
  bool has_threads() const { return lanes_.size() > 1; }

  // A frame of a worker of this job, or a push of another server. A status that is not ok
  // becomes an error reply. This and the next two take the lock themselves and hold it for what
  // they call below.
  virtual Status handle(transport::Session& session, const transport::FrameHeader& header,
                        transport::ConstBytes control, transport::MutableBytes payload) = 0;
  // Where the payload of a push goes, whose sender may speak.
  virtual transport::PayloadTarget prepare_push(transport::Session& session,
                                                const transport::FrameHeader& header,
                                                transport::ConstBytes control) = 0;
  virtual void drop_session(uint64_t session) = 0;
  // With the lock held.
  virtual Status get(GetCall call) = 0;
  // The worker contributes nothing after `step`.
  virtual Status complete(uint32_t worker, uint64_t step) = 0;
  // No gradient has come yet.
  virtual bool untouched() const = 0;

  static bool from_server(const transport::Session& session) {
    return session.peer().member.role == transport::PeerRole::kServer;
  }
  // What the frame came to; when it was well and ends its request, with an empty reply.
  static Status answered(transport::Session& session, const transport::FrameHeader& header,
                         Status status);
  // What the mode's state machine is told of the job.
  template <class Options>
  Options core_options() const {
    Options options;
    options.workers = config_.worker_num;
    options.lanes = config_.data_lanes;
    for (uint32_t i = 0; i < model_.parameter_index.trained; ++i) {
      options.slices.push_back(SliceGeometry::of(model_.parameter_index.entries[i]));
    }
    options.variables = static_cast<uint32_t>(model_.parameter_index.entries.size());
    return options;
  }
  // A frame whose verb every mode has. With the lock held, as the next.
  Status handle_common(transport::Session& session, const transport::FrameHeader& header,
                       transport::ConstBytes control, transport::ConstBytes payload);
  Status handle_get(const transport::Session& session, const transport::FrameHeader& header,
                    transport::ConstBytes control, transport::ConstBytes payload);
  // Sends the answer to its session, which may be of another lane, or gone: a value as pieces.
  void send(ServerAnswer answer);
  // The published version of a slice, or a copy of anything else that is kept.
  fluid::Tensor value_of(uint32_t variable) const;

  // After updates: tells what they made that is not finite, and by the policy ends the job. Of one
  // worker's gradient: who sent it, and in which of its steps.
  void look_at_updates(std::optional<uint32_t> sender = std::nullopt,
                       std::optional<uint64_t> step = std::nullopt);

  const ParameterServerConfig config_;
  ServerModel model_;
  ServingEvents events_;
  Logger logger_;

 private:
  struct Peer {
    transport::Session* session = nullptr;
    size_t unflushed = 0;
  };
  // Touched on its loop only, but for the outbox.
  struct Lane {
    std::optional<PostQueue> outbox;  // empty: the data loop's, and the only lane
    std::unordered_map<uint64_t, Peer> peers;
    PieceMemory received;  // row numbers, and pieces of initial values
  };
  Lane& lane_of(const transport::Session& session) {
    return lanes_[session.peer().lane_index % lanes_.size()];
  }
  // Calls on_peer(Peer&) on the session's loop, unless it is gone.
  template <class OnPeer>
  void on_loop_of(uint64_t session, uint32_t lane, OnPeer on_peer);
  Status check_sender(const transport::Session& session,
                      const transport::FrameHeader& header) const;
  transport::PayloadTarget prepare_initial(const transport::Session& session,
                                           const transport::FrameHeader& header);
  Status handle_init(transport::Session& session, const transport::FrameHeader& header,
                     transport::ConstBytes control, transport::ConstBytes payload);
  // Begins to write a table as it is now; answers when the file is there. Updates go on.
  Status handle_snapshot(transport::Session& session, const transport::FrameHeader& header,
                         transport::ConstBytes control);
  Status handle_part(transport::Session& session, const transport::FrameHeader& header,
                     transport::ConstBytes control);
  // Begins to read or check values of a checkpoint, and answers when that is done.
  Status handle_part_source(const transport::Session& session, const transport::FrameHeader& header,
                            transport::ConstBytes control);
  Status handle_table_order(const transport::Session& session, const transport::FrameHeader& header,
                            transport::ConstBytes control);
  // Any thread.
  void read_part(const PartSource& source);
  // The slice has this value before the first step.
  void tell_initial_value(uint32_t variable);
  // Where the numbers of the rows go that a get asks for.
  transport::PayloadTarget prepare_row_numbers(const transport::Session& session,
                                               const transport::FrameHeader& header,
                                               transport::ConstBytes control);
  Result<GetCall> read_get(const transport::Session& session, const transport::FrameHeader& header,
                           transport::ConstBytes control, transport::ConstBytes payload) const;
  // What is kept, for an initial value; versions that were read stay as they are.
  fluid::Tensor& writable(uint32_t variable);
  // The value, or the rows of it that the answer is to have.
  fluid::Tensor value_for(const ServerAnswer& answer);
  // Tells the observer of the growing tables.
  void show_tables() const;
  fluid::Tensor rows_of_table(const ServerAnswer& answer);
  bool is_new_lookup(const ServerAnswer& answer);
  std::string begin_part(const PartOrder& order, ServerPart& part) const;
  TableSaves::Run beside_frames();
  void write(Peer& peer, const ServerAnswer& answer, const fluid::Tensor& value) const;
  // What went wrong is this server's own, such as want of memory: the job ends.
  void fail(const Status& why);
  transport::PayloadTarget prepare(transport::Session& session,
                                   const transport::FrameHeader& header,
                                   transport::ConstBytes control);
  void tell_parameter_index(transport::Session& session, const transport::FrameHeader& header);
  void refuse(transport::Session& session, const transport::FrameHeader& header,
              const Status& why) const;
  // The number in the parameter index of a table that is to be saved.
  Result<uint32_t> find_saved_table(const std::string& name) const;
  // How many rows a get asks for, of which variables; checked.
  Result<std::vector<RowsOfGet>> read_wanted_rows(const transport::FrameHeader& header,
                                                  transport::ConstBytes control) const;
  Status read_rows(const transport::FrameHeader& header, transport::ConstBytes control,
                   transport::ConstBytes payload, GetCall& call) const;

  // Requests that looked rows up in training, by worker and table: the newest ones.
  std::map<std::pair<uint32_t, uint32_t>, std::set<uint64_t>> counted_lookups_;

  // What a handler sends may end a session, which is told at once.
  mutable std::recursive_mutex mutex_;
  FiniteGuard guard_;
  std::atomic<bool> failed_ = false;
  const SaveFolders save_folders_;
  const TableSaves::Run beside_frames_;
  TableSaves saves_;
  ServerPartWriter part_writer_;
  TableOrders orders_;
  // The parameter index with this step, as workers are told it.
  transport::SharedBytes told_;
  uint64_t told_step_ = 0;
  transport::Incarnations incarnations_;
  std::vector<Lane> lanes_;
};

}  // namespace fleet::strategies
