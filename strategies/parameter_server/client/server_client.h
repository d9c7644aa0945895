// A worker's way to its servers, whatever the mode: its channels, what the servers keep, initial
// values, and the bookkeeping of requests that are under way.
//
// Nothing here blocks. The thread that drives the loop calls everything.
#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/shard_tree.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "transport/rpc/channel.h"

namespace fleet::strategies {

// A variable on a server: an entry of that server's parameter index.
struct RemoteVariable {
  uint32_t server = 0;
  uint32_t variable = 0;
  // clang-tidy 14 takes the comparison with 0 for a pointer. NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const RemoteVariable&, const RemoteVariable&) = default;
};

class ServerClient {
 public:
  virtual ~ServerClient() = default;

  // Begins to connect and asks every server for its parameter index; servers may come later.
  void start();
  // Every parameter index is here.
  bool ready() const { return parameter_indexes_missing_ == 0; }
  const ParameterIndex& parameter_index(uint32_t server) const {
    return parameter_indexes_[server];
  }
  // By name in a server's parameter index: the variable itself, or the slice with that gradient.
  // Throws UsageError that names the server when it is not there.
  RemoteVariable find(uint32_t server, std::string_view name) const;
  RemoteVariable find_gradient(uint32_t server, std::string_view gradient) const;

  // Gives a variable its initial value; only before any worker's first step.
  void assign(RemoteVariable variable, const std::byte* value, uint64_t bytes);
  // Tells every server that so many steps are over before its first: its random numbers go on
  // behind them. Only before any worker's first step.
  void set_steps_before(uint64_t steps, transport::DoneHandler on_done);
  // Rows of a variable: `rows` ascend strictly, their values go to `memory`, one after the other,
  // in the variable's type. It is written until the request is over and its on_done has run.
  struct RowsWanted {
    uint32_t variable = 0;
    std::vector<int64_t> rows;
    std::byte* memory = nullptr;
    std::vector<float> shows = {};  // of ids: a show and a click of each; or nothing
  };
  // Asks for rows as they are after step() steps.
  void get_rows(RemoteVariable variable, std::vector<int64_t> rows, std::byte* memory,
                transport::DoneHandler on_done = nullptr);
  // The same of ids of a server's growing tables, each table once, with one request on each data
  // lane; kMostRowsOfGet at most. `ahead`: as rows are after the step under way, which must end
  // before anything waits for the answer.
  void get_growing_rows(uint32_t server, std::vector<RowsWanted> wanted, GrowingGet what,
                        bool ahead, const std::function<transport::DoneHandler()>& next_on_done);
  // Tells a server to save its rows of a table as they are after step() steps.
  void save_table(uint32_t server, const TableSnapshot& snapshot,
                  transport::DoneHandler on_done = nullptr);
  // Tells all servers to write what they keep, as it is after step() steps, as parts of a
  // checkpoint: `first` and the ones behind it. `why`, which must live until on_done has run, gets
  // the reason of one that does not.
  void save_parts(const PartOrder& first, std::string& why, transport::DoneHandler on_done);
  // Tells all servers to read their values from a checkpoint, or to check it; only before any
  // worker's first step. `why` as above.
  void load_parts(const PartSource& source, std::string& why, transport::DoneHandler on_done);
  // Has each server carry out its order; `answers` gets theirs, by server, and must live until
  // on_done has run.
  using OrderOfServer = std::function<TableOrder(uint32_t server)>;
  void order_tables(const OrderOfServer& order, std::vector<TableAnswer>& answers,
                    transport::DoneHandler on_done);
  // This worker contributes no more.
  void complete();
  // Disconnects in good order once idle.
  void finish() {
    for (const auto& channel : channels_) channel->finish();
  }

  // Nothing is under way; status() says how it went.
  bool idle() const { return under_way_ == 0; }
  // The first failure; it stays.
  const Status& status() const { return status_; }
  // Called whenever the last request under way has ended. May begin new work.
  void set_on_idle(std::function<void()> on_idle) { on_idle_ = std::move(on_idle); }
  // Everything under way, and whatever is asked later, ends with this status.
  void fail_all(const Status& why) {
    for (const auto& channel : channels_) channel->fail_all(why);
  }
  // Steps that are over.
  uint64_t step() const { return step_; }
  // Servers with requests under way, for messages.
  std::vector<uint32_t> waiting_for() const;
  const ParameterServerConfig& config() const { return config_; }

 protected:
  ServerClient(Loop& loop, transport::Network& network, const ParameterServerConfig& config,
               const transport::Hello& hello,
               const std::function<void(transport::MutableBytes)>& random, const Logger& logger);

  // A parameter index has come.
  virtual void on_parameter_index(uint32_t server) = 0;
  // The step that rows are asked for.
  virtual uint64_t rows_step() const { return step_; }
  // The last request under way has ended.
  virtual void before_idle() {}

  uint32_t lane_of(RemoteVariable variable) const { return variable.variable % config_.data_lanes; }
  // A frame of this job without contents.
  transport::Message make_message(transport::Verb verb, uint64_t step) const;
  // A piece of what some shards push for a slice, with others behind it. `rows`: how many the
  // whole has, when it is of rows.
  transport::Message make_push(RemoteVariable slice, uint64_t step, ShardRange shards,
                               const transport::Payload& whole, uint32_t piece,
                               const uint64_t* rows) const;
  // Asks for variables of a lane.
  transport::Message make_get(uint32_t server, uint32_t lane, uint64_t step,
                              const std::vector<uint32_t>& variables) const;
  // Where a piece of a value goes; one that does not belong there is refused.
  static transport::PayloadTarget target_of(uint32_t server, const transport::FrameHeader& header,
                                            std::byte* memory, uint64_t bytes);
  // The request's own on_done runs before the bookkeeping. Lanes are data lanes, and one behind
  // them, which connects when it is first used.
  void submit(uint32_t server, uint32_t lane, transport::Request request);
  void fail(Status why) {
    if (status_.ok()) status_ = std::move(why);
  }
  // An answer ended before all of its pieces had come.
  static Status incomplete(std::string where, uint64_t pieces);
  void check_value_bytes(RemoteVariable variable, uint64_t bytes, std::string_view op) const;
  const ParameterEntry& entry_of(RemoteVariable variable) const {
    return parameter_indexes_[variable.server].entries[variable.variable];
  }

  const ParameterServerConfig config_;
  uint64_t step_ = 0;

 private:
  void ask_parameter_index(uint32_t server);
  class RowsReader;
  // All of one lane, ascending by variable.
  void ask_rows(uint32_t server, const std::vector<RowsWanted>& wanted, GrowingGet what,
                uint64_t step, transport::DoneHandler on_done);
  // Sends the server that message; a text that comes back goes to `why`.
  void submit_order(uint32_t server, transport::Message order, std::string& why,
                    transport::DoneHandler on_done);
  void keep_parameter_index(uint32_t server, ParameterIndex parameter_index);
  void turn_idle();
  std::vector<std::string> waits() const;

  // Numbers of variables, by name in the parameter index.
  using Numbers = std::unordered_map<std::string_view, uint32_t>;

  std::vector<ParameterIndex> parameter_indexes_;
  std::vector<std::vector<uint64_t>> value_bytes_;  // by server and variable
  std::vector<Numbers> names_;                      // by server
  std::vector<Numbers> gradients_;                  // by server
  std::vector<uint32_t> under_way_at_;              // by server
  size_t under_way_ = 0;
  Status status_;
  std::vector<std::unique_ptr<transport::Channel>> channels_;  // server by server
  std::function<void()> on_idle_;
  uint32_t parameter_indexes_missing_ = 0;
  WaitList::Watch watch_;
};

}  // namespace fleet::strategies
