#include "transport/coordinator/meetings.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/archive.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

// More names of meetings than any job uses; the oldest answers are forgotten beyond.
constexpr size_t kMaxFinished = 4096;

std::string key_of(const ReduceCall& call) {
  return str_cat(static_cast<int>(call.group), '|', call.name);
}

size_t length_of(const ReduceValues& values) {
  return std::visit([](const auto& list) { return list.size(); }, values);
}

std::string shape_text(const ReduceCall& call) {
  constexpr std::array<std::string_view, 5> kOps = {"?", "sum", "min", "max", "gather"};
  constexpr std::array<std::string_view, 3> kTypes = {"integers", "doubles", "texts"};
  const auto op = std::min<size_t>(static_cast<size_t>(call.op), 4);
  return str_cat(kOps[op], " of ", length_of(call.values), " ", kTypes[call.values.index()]);
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if constexpr (std::is_same_v<T, int64_t>) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

// One fixed balanced binary tree by rank, so that a sum has the same bits in whatever order the
// members arrived.
template <class T>
ReduceValues reduce_tree(ReduceOp op, std::vector<std::vector<T>> parts) {
  for (size_t stride = 1; stride < parts.size(); stride *= 2) {
    for (size_t i = 0; i + stride < parts.size(); i += 2 * stride) {
      for (size_t k = 0; k < parts[i].size(); ++k) {
        parts[i][k] = combine(op, parts[i][k], parts[i + stride][k]);
      }
    }
  }
  return std::move(parts.front());
}

template <class T>
ReduceValues reduce_all(ReduceOp op, std::vector<ReduceValues>& given) {
  std::vector<std::vector<T>> parts;
  for (ReduceValues& values : given) parts.push_back(std::move(std::get<std::vector<T>>(values)));
  if constexpr (std::is_same_v<T, std::string>) {
    std::vector<std::string> all;
    for (auto& part : parts) std::move(part.begin(), part.end(), std::back_inserter(all));
    return all;
  } else {
    if (op != ReduceOp::kGather) return reduce_tree(op, std::move(parts));
    std::vector<T> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
}

Status meeting_status(ErrorCode code, const ReduceCall& call, std::string what,
                      std::string expected, std::string got) {
  return Status(code, {.what = std::move(what),
                       .where = str_cat("meeting '", call.name, "' of ", group_name(call.group)),
                       .expected = std::move(expected),
                       .got = std::move(got),
                       .fix = {}});
}

Status will_not_come(MemberId member, const ReduceCall& call) {
  return meeting_status(ErrorCode::kPrecondition, call,
                        str_cat(member.to_string(), " has completed and will not come"), {}, {});
}

bool contains(const std::vector<const MemberStatus*>& list, MemberId member) {
  return std::any_of(list.begin(), list.end(),
                     [member](const MemberStatus* status) { return status->id == member; });
}

}  // namespace

struct Meetings::Meeting {
  struct Arrived {
    std::weak_ptr<Session> session;
    FrameHeader header;
    ReduceCall call;
  };
  std::map<MemberId, Arrived> arrived;
  std::optional<Loop::TimerId> timer;
  const ReduceCall& call() const { return arrived.begin()->second.call; }
};

// How the last meeting of a name ended, for members whose answer was lost.
struct Meetings::Finished {
  uint64_t sequence = 0;
  uint64_t order = 0;
  Status failure;
  SharedBytes values;

  void answer(Session& session, const FrameHeader& request) const {
    if (!failure.ok()) return session.send(make_error_reply(request, failure));
    for (Message& frame : message_frames(make_reply(request).header, values)) {
      session.send(std::move(frame), false);
    }
    session.flush();
  }
};

Meetings::Meetings(Loop& loop, Roster roster) : loop_(loop), roster_(std::move(roster)) {}

Meetings::~Meetings() {
  for (const auto& [key, meeting] : meetings_) {
    if (meeting->timer) loop_.cancel(*meeting->timer);
  }
}

PayloadTarget Meetings::prepare_payload(const Session& session, const FrameHeader& header) {
  return calls_[session.id()].target(header);
}

void Meetings::on_closed(const Session& session) {
  calls_.erase(session.id());
}

void Meetings::on_complete(MemberId member, CompleteNote left) {
  if (!left.values.empty()) left_.emplace(member, std::move(left));
  std::vector<std::string> deserted;
  for (const auto& [key, meeting] : meetings_) {
    const bool expected = contains(roster_(meeting->call().group), member);
    if (expected && !meeting->arrived.contains(member)) deserted.push_back(key);
  }
  for (const std::string& key : deserted) {
    answer(key, will_not_come(member, meetings_.at(key)->call()));
  }
  // Those that waited for it alone.
  std::vector<std::string> whole;
  for (const auto& [key, meeting] : meetings_) {
    if (is_whole(*meeting)) whole.push_back(key);
  }
  for (const std::string& key : whole) finish(key);
}

void Meetings::give_way(uint64_t saves_asked) {
  saves_asked_ = saves_asked;
  for (auto at = meetings_.begin(); at != meetings_.end();) {
    Meeting& meeting = *at->second;
    std::erase_if(meeting.arrived, [this](const auto& each) {
      const Meeting::Arrived& arrived = each.second;
      if (!gives_way(arrived.call)) return false;
      const auto session = arrived.session.lock();
      if (session) session->send(make_error_reply(arrived.header, save_first(arrived.call.name)));
      return true;
    });
    if (!meeting.arrived.empty()) {
      ++at;
      continue;
    }
    if (meeting.timer) loop_.cancel(*meeting.timer);
    at = meetings_.erase(at);
  }
}

void Meetings::end(const Status& why) {
  end_ = why;
  while (!meetings_.empty()) answer(std::string(meetings_.begin()->first), why);
}

void Meetings::on_reduce(MemberId member, Session& session, const FrameHeader& header,
                         ConstBytes control) {
  auto call_in = calls_.extract(session.id());
  MessageReader alone;
  const auto whole = (call_in ? call_in.mapped() : alone).take(header, control);
  if (!whole) {
    calls_.insert(std::move(call_in));
    return;
  }
  auto decoded = decode<ReduceCall>(*whole, "reduce");
  if (!decoded.ok()) return session.send(make_error_reply(header, decoded.status()));
  ReduceCall& call = decoded.value();
  if (!end_.ok()) return session.send(make_error_reply(header, end_));
  const auto finished = finished_.find(key_of(call));
  if (finished != finished_.end() && finished->second->sequence == call.sequence) {
    return finished->second->answer(session, header);
  }
  if (const Status status = check_call(member, call); !status.ok()) {
    return session.send(make_error_reply(header, status));
  }
  if (gives_way(call)) return session.send(make_error_reply(header, save_first(call.name)));
  arrive(member, session, header, std::move(call));
}

Status Meetings::check_call(MemberId member, const ReduceCall& call) const {
  if (call.group < Group::kWorkers || call.group > Group::kTraining || call.op < ReduceOp::kSum ||
      call.op > ReduceOp::kGather || (call.values.index() == 2 && call.op != ReduceOp::kGather)) {
    return meeting_status(ErrorCode::kBadFrame, call, "a call that cannot be answered", {},
                          shape_text(call));
  }
  const auto list = roster_(call.group);
  if (!contains(list, member)) {
    return meeting_status(ErrorCode::kPrecondition, call,
                          str_cat(member.to_string(), " does not belong to the group"), {}, {});
  }
  for (const MemberStatus* other : list) {
    if (other->state == MemberState::kComplete) return will_not_come(other->id, call);
  }
  const auto finished = finished_.find(key_of(call));
  if (finished != finished_.end() && call.sequence != finished->second->sequence + 1) {
    return meeting_status(ErrorCode::kPrecondition, call, "members have lost count of each other",
                          str_cat("call number ", finished->second->sequence + 1),
                          str_cat("call number ", call.sequence));
  }
  return {};
}

void Meetings::arrive(MemberId member, Session& session, const FrameHeader& header,
                      ReduceCall call) {
  const std::string key = key_of(call);
  auto& meeting = meetings_[key];
  if (!meeting) meeting = std::make_unique<Meeting>();
  if (meeting->arrived.empty() && call.deadline_ms != 0) {
    constexpr uint64_t kLongest = 1000ULL * 3600 * 24 * 365;
    meeting->timer = loop_.call_after(
        std::chrono::milliseconds(std::min(call.deadline_ms, kLongest)), [this, key] {
          meetings_.at(key)->timer.reset();
          expire(key);
        });
  }
  const Meeting::Arrived mine{session.weak_from_this(), header, std::move(call)};
  meeting->arrived.insert_or_assign(member, mine);
  const auto& [first_id, first] = *meeting->arrived.begin();
  for (const auto& [id, other] : meeting->arrived) {
    const bool same_length = first.call.op == ReduceOp::kGather ||
                             length_of(first.call.values) == length_of(other.call.values);
    if (first.call.sequence == other.call.sequence && first.call.op == other.call.op &&
        first.call.values.index() == other.call.values.index() && same_length) {
      continue;
    }
    const Status status = meeting_status(
        ErrorCode::kPrecondition, first.call, "members ask for different things",
        str_cat(first_id.to_string(), ": call ", first.call.sequence, ", ", shape_text(first.call)),
        str_cat(id.to_string(), ": call ", other.call.sequence, ", ", shape_text(other.call)));
    return answer(key, status);
  }
  if (is_whole(*meeting)) finish(key);
}

bool Meetings::is_whole(const Meeting& meeting) const {
  return meeting.arrived.size() == roster_(meeting.call().group).size();
}

void Meetings::add_what_was_left(const ReduceCall& call, std::vector<ReduceValues>& given) const {
  if (call.group != Group::kTraining || call.op != ReduceOp::kSum) return;
  for (const auto& [member, left] : left_) {
    const auto* values = std::get_if<std::vector<double>>(&given.front());
    const bool fits = values != nullptr && values->size() == left.values.size();
    if (fits && left.name == call.name) given.emplace_back(left.values);
  }
}

void Meetings::finish(const std::string& key) {
  Meeting& meeting = *meetings_.at(key);
  std::vector<ReduceValues> given;
  for (auto& [id, arrived] : meeting.arrived) given.push_back(std::move(arrived.call.values));
  const ReduceOp op = meeting.call().op;
  add_what_was_left(meeting.call(), given);
  ReduceValues result;
  switch (given.front().index()) {
    case 0:
      result = reduce_all<int64_t>(op, given);
      break;
    case 1:
      result = reduce_all<double>(op, given);
      break;
    default:
      result = reduce_all<std::string>(op, given);
      break;
  }
  answer(key, std::move(result));
}

void Meetings::answer(const std::string& key, Result<ReduceValues> result) {
  const auto found = meetings_.find(key);
  const std::unique_ptr<Meeting> meeting = std::move(found->second);
  meetings_.erase(found);
  if (meeting->timer) loop_.cancel(*meeting->timer);
  auto finished = std::make_unique<Finished>();
  finished->sequence = meeting->call().sequence;
  finished->order = ++finished_count_;
  finished->failure = result.status();
  if (result.ok()) {
    finished->values = std::make_shared<const std::vector<std::byte>>(encode(result.value()));
  }
  for (const auto& [id, arrived] : meeting->arrived) {
    if (const auto session = arrived.session.lock()) {
      finished->answer(*session, arrived.header);
    }
  }
  finished_[key] = std::move(finished);
  forget_oldest();
}

void Meetings::forget_oldest() {
  if (finished_.size() <= kMaxFinished) return;
  const auto oldest = std::min_element(
      finished_.begin(), finished_.end(),
      [](const auto& a, const auto& b) { return a.second->order < b.second->order; });
  finished_.erase(oldest);
}

void Meetings::expire(const std::string& key) {
  const Meeting& meeting = *meetings_.at(key);
  const ReduceCall& call = meeting.call();
  answer(key, meeting_status(ErrorCode::kDeadline, call,
                             str_cat("not everybody came within ", call.deadline_ms, " ms"),
                             str_cat("all of ", roster_(call.group).size()),
                             str_cat("missing: ", missing_text(meeting))));
}

std::string Meetings::missing_text(const Meeting& meeting) const {
  std::vector<std::string> missing;
  for (const MemberStatus* status : roster_(meeting.call().group)) {
    if (meeting.arrived.contains(status->id)) continue;
    missing.push_back(status->state == MemberState::kAbsent
                          ? str_cat(status->id.to_string(), " (has not joined)")
                          : str_cat(status->id.to_string(), " (", phase_name(status->phase),
                                    ", step ", status->step, ")"));
  }
  return join(missing, ", ");
}

std::vector<std::string> Meetings::waits() const {
  std::vector<std::string> lines;
  for (const auto& [key, meeting] : meetings_) {
    std::vector<std::string> here;
    for (const auto& [id, arrived] : meeting->arrived) here.push_back(id.to_string());
    lines.push_back(str_cat("meeting '", meeting->call().name, "' of ",
                            group_name(meeting->call().group), ": ", join(here, ", "), " wait for ",
                            missing_text(*meeting)));
  }
  return lines;
}

}  // namespace fleet::transport
