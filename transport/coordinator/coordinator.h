// Watches the members of a job: heartbeat table, stall reports, the verdict that ends the job; and
// has the meetings where they wait for each other. Lives on server 0, or on rank 0 in
// collective mode, as the handler of control lanes; every member, its own process included, talks
// to it through a CoordinatorClient.
//
// A state machine on one loop: every call is made on that loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "transport/coordinator/meetings.h"
#include "transport/coordinator/membership.h"
#include "transport/rpc/incarnations.h"
#include "transport/rpc/server.h"

namespace fleet::transport {

struct CoordinatorOptions {
  uint32_t worker_num = 1;
  uint32_t server_num = 0;
  // A member whose last heartbeat is older is silent, and ends the job.
  Duration heartbeat_timeout = std::chrono::seconds(10);
  // How long a member whose connection broke may take to come back.
  ReconnectGrace reconnect_grace;
  // A member that has not come at all by then ends the job.
  Duration join_deadline = std::chrono::seconds(180);
  // A member that lives but does not advance, or has not joined, is named this often, and ends the
  // job in the end.
  Duration stall_report = std::chrono::seconds(8);
  Duration stall_deadline = std::chrono::minutes(30);
};

class Coordinator final : public ServerHandler {
 public:
  // Frames that are not the coordinator's go to `next` (null: refused), as do opens and closes.
  Coordinator(Loop& loop, CoordinatorOptions options, Logger logger = {},
              ServerHandler* next = nullptr);
  ~Coordinator() override;

  void start();  // the clock of join_deadline begins
  // Once, after the verdict was sent to every member that is connected.
  void set_on_verdict(std::function<void(const Verdict&)> on_verdict);
  // Once, when every worker has completed; the servers are told by then. And once when every
  // member has.
  void set_on_workers_complete(std::function<void()> on_workers_complete);
  void set_on_all_complete(std::function<void()> on_all_complete);

  // From stall_report on.
  void set_on_stall(StallHandler on_stall);

  void abort(Verdict verdict);  // the first one counts
  const std::optional<Verdict>& verdict() const { return verdict_; }
  std::vector<MemberStatus> members() const;
  bool all_complete() const;
  // One line for each wait: who is in which barrier and who is missing.
  std::vector<std::string> waits() const { return meetings_.waits(); }

  // ServerHandler
  Status admit(const Hello& peer) override;
  Loop* on_open(Session& session) override;
  PayloadTarget prepare_payload(Session& session, const FrameHeader& header,
                                ConstBytes control) override;
  void on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                MutableBytes payload) override;
  void on_closed(Session& session, const Status& why) override;

 private:
  struct Member;

  void tick();
  void check_silence(Duration elapsed);
  void check_joins();
  void check_stalls(Duration elapsed);
  Member* stall_culprit(Duration longer_than);
  Stall stall_of(const Member& culprit) const;
  void tell_stall(const Member* culprit);
  void on_heartbeat(Member& member, Session& session, const FrameHeader& header,
                    ConstBytes control);
  void tell_workers_complete(const Member& server);
  void on_save(Session& session, const FrameHeader& header);
  void tell_to_save(const Member& worker);
  void on_complete(Member& member, Session& session, const FrameHeader& header, ConstBytes control);
  void on_abort(const Member& member, Session& session, const FrameHeader& header,
                ConstBytes control);
  void on_death(Session& session, const FrameHeader& header, ConstBytes control);
  void await_return(Member& member, Duration grace, std::string why);
  bool is_sensible(const Verdict& verdict) const;
  std::vector<Member*> group_members(Group group) const;
  void member_lost(MemberId id, std::string why);
  Member* find(MemberId id) const;
  Verdict verdict_on(const Member& member, ErrorCode code, std::string reason) const;
  bool complete(Group group) const;

  Loop& loop_;
  CoordinatorOptions options_;
  Logger logger_;
  ServerHandler* next_;
  Incarnations incarnations_;
  std::function<void(const Verdict&)> on_verdict_;
  std::function<void()> on_workers_complete_;
  std::function<void()> on_all_complete_;
  StallHandler on_stall_;
  bool stalled_ = false;
  std::map<MemberId, std::unique_ptr<Member>> members_;
  Meetings meetings_;
  std::optional<Verdict> verdict_;
  std::optional<Loop::TimerId> tick_timer_;
  TimePoint last_tick_{};
  Duration tick_interval_;
  Duration running_{0};
  uint64_t saves_asked_ = 0;
  bool workers_told_ = false;
  bool all_told_ = false;
};

}  // namespace fleet::transport
