// A member's side of the coordinator: heartbeats, barriers, small reductions, and the verdict. In
// real processes it lives on a control thread of its own, so that it answers while the training
// thread computes; under simulation on the same loop as everything else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "transport/coordinator/membership.h"
#include "transport/rpc/channel.h"

namespace fleet::transport {

struct CoordinatorClientOptions {
  Endpoint endpoint;     // where the coordinator is
  MemberId coordinator;  // and who: server 0, or worker 0 in collective mode
  Hello hello;           // of this process
  Secret secret;
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration heartbeat_timeout = std::chrono::seconds(10);
  // How long the coordinator may be unreachable after its connection broke.
  ReconnectGrace reconnect_grace;
  // Bounds the first connection and, unless said otherwise, every meeting's arrival there.
  Duration rpc_deadline = std::chrono::seconds(180);
  std::function<void(MutableBytes)> random;
  // Asked on the loop's thread before each heartbeat: HeartbeatNote::awaits. May be empty.
  std::function<std::string()> awaits;
  bool tell_unreachable = true;  // as ChannelOptions has it
  // How calls that block wait until `done()`, whose answer changes in handlers of the loop. Empty:
  // the calling thread sleeps, and another one drives the loop.
  std::function<void(const std::function<bool()>& done)> wait;
};

// Construct, start and destroy on the loop's thread (or while nobody drives it).
class CoordinatorClient {
 public:
  using ReduceHandler = std::function<void(Result<ReduceValues>)>;

  CoordinatorClient(Loop& loop, Network& network, CoordinatorClientOptions options,
                    Logger logger = {});
  ~CoordinatorClient();

  void start();
  // Once, on the loop's thread: the job ends because of the culprit. Set before start().
  void set_on_verdict(std::function<void(const Verdict&)> on_verdict);
  // Once, on the loop's thread: the coordinator knows this member. Set before start().
  void set_on_joined(std::function<void()> on_joined);
  // Once, on the loop's thread, for servers: every worker has completed.
  void set_on_workers_complete(std::function<void()> on_workers_complete);

  // Any thread, without locks: what the training thread is doing. Sent with the next heartbeat.
  void set_phase(Phase phase, uint64_t step);
  void made_progress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  Phase phase() const;
  uint64_t step() const;

  // On the loop's thread. The handler runs once, later: with what every member of the group gave,
  // reduced by rank in one fixed tree; or with the verdict, the deadline (naming who is missing),
  // or a disagreement between members. `saves`: ReduceCall::saves.
  void reduce_async(Group group, std::string name, ReduceOp op, ReduceValues values,
                    Duration deadline, ReduceHandler handler, std::optional<uint64_t> saves = {});
  // Leaves in good order: losing the connection is no failure afterwards.
  void complete_async(DoneHandler handler);
  // All workers are told that a checkpoint is to be made.
  void ask_to_save_async();
  // Tells the coordinator that the job must end, and why; its verdict comes back through
  // on_verdict. When that takes longer than a second the given one is taken as it is.
  void abort_async(const Verdict& verdict);

  // Any thread, before this member completes: what later sums of that name over the workers that
  // still train get of it (CompleteNote).
  void leave_behind(std::string name, std::vector<double> values);

  // The same for any thread but the loop's: blocks until the answer. Deadline 0: none of its own.
  Status barrier(Group group, const std::string& name, Duration deadline = Duration(0),
                 std::optional<uint64_t> saves = {});
  Result<ReduceValues> reduce(Group group, const std::string& name, ReduceOp op,
                              ReduceValues values, Duration deadline = Duration(0),
                              std::optional<uint64_t> saves = {});
  Status complete();
  void abort(Verdict verdict);
  void ask_to_save();  // does not block

  // Any thread.
  std::optional<Verdict> verdict() const;
  // How often some worker has asked all to save.
  uint64_t saves_asked() const { return saves_asked_.load(std::memory_order_relaxed); }

 private:
  void join();
  void beat();
  void send_heartbeat();
  void on_open();
  void on_lost();
  void on_attempt_failed(const Status& why);
  void arm_grace(Duration grace);
  void give_up();
  void on_notice(const FrameHeader& header, ConstBytes control);
  void conclude(const Verdict& verdict);
  void blame_coordinator(ErrorCode code, std::string reason);
  void stop_timers();

  Loop& loop_;
  CoordinatorClientOptions options_;
  Logger logger_;
  std::unique_ptr<Channel> channel_;
  std::function<void(const Verdict&)> on_verdict_;
  std::function<void()> on_joined_;
  std::function<void()> on_workers_complete_;
  std::atomic<uint64_t> phase_and_step_{0};
  std::atomic<uint64_t> progress_{0};
  std::atomic<uint64_t> saves_asked_{0};
  std::map<std::string, uint64_t> sequences_;
  std::optional<Loop::TimerId> beat_timer_;
  std::optional<Loop::TimerId> grace_timer_;
  std::optional<Loop::TimerId> abort_timer_;
  TimePoint last_beat_{};
  Channel::Mark beat_mark_;
  TimePoint lost_at_{};
  bool same_machine_ = false;  // as the coordinator, on the last connection
  Duration silent_{0};
  bool beat_under_way_ = false;
  bool joined_ = false;
  bool workers_complete_ = false;
  bool completing_ = false;
  bool left_ = false;  // the coordinator ended before its answer to that came
  bool completed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  mutable std::mutex mutex_;  // guards what follows
  std::optional<Verdict> verdict_;
  std::optional<CompleteNote> left_behind_;
};

}  // namespace fleet::transport
