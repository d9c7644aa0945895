// Where the members of a job meet: barriers and small reductions. Each is known by its group and
// name; it ends when every member of the group has called it, and all get one answer.
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

#include "transport/coordinator/membership.h"
#include "transport/rpc/long_message.h"

namespace fleet::transport {

class Meetings {
 public:
  // The members of a group, by role and index, as they are now.
  using Roster = std::function<std::vector<const MemberStatus*>(Group)>;

  Meetings(Loop& loop, Roster roster);
  ~Meetings();
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;

  // A member's kReduce: where its payload goes, then the frame. The answer goes to the session, now
  // or when the meeting ends; a call that is made again after a reconnect is answered again.
  PayloadTarget prepare_payload(const Session& session, const FrameHeader& header);
  void on_reduce(MemberId member, Session& session, const FrameHeader& header, ConstBytes control);
  // What has come of a call that takes several frames is forgotten.
  void on_closed(const Session& session);

  // So often have members been asked to save: calls that give way to it are sent back.
  void give_way(uint64_t saves_asked);
  // The member will come to no meeting any more: those that wait for it fail. What it leaves behind
  // is in later sums.
  void on_complete(MemberId member, CompleteNote left);
  // Every meeting, now and later, ends so.
  void end(const Status& why);

  // One line for each wait: who is in which meeting and who is missing.
  std::vector<std::string> waits() const;

 private:
  struct Meeting;
  struct Finished;

  bool gives_way(const ReduceCall& call) const { return call.saves && *call.saves < saves_asked_; }
  Status check_call(MemberId member, const ReduceCall& call) const;
  void arrive(MemberId member, Session& session, const FrameHeader& header, ReduceCall call);
  bool is_whole(const Meeting& meeting) const;
  void finish(const std::string& key);
  void answer(const std::string& key, Result<ReduceValues> result);
  void expire(const std::string& key);
  void forget_oldest();
  std::string missing_text(const Meeting& meeting) const;
  void add_what_was_left(const ReduceCall& call, std::vector<ReduceValues>& given) const;

  Loop& loop_;
  Roster roster_;
  std::map<uint64_t, MessageReader> calls_;  // that are coming in, by session
  std::map<std::string, std::unique_ptr<Meeting>> meetings_;
  std::map<std::string, std::unique_ptr<Finished>> finished_;
  std::map<MemberId, CompleteNote> left_;
  uint64_t finished_count_ = 0;
  uint64_t saves_asked_ = 0;
  Status end_;  // ok until end()
};

}  // namespace fleet::transport
