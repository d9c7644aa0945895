#include "transport/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "base/archive.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr size_t kMaxReason = 4096;

std::string waiting_text(const std::vector<MemberId>& waiting) {
  std::vector<std::string> names;
  names.reserve(waiting.size());
  for (const MemberId& id : waiting) names.push_back(id.to_string());
  return names.empty() ? "nobody" : join(names, ", ");
}

}  // namespace

struct Coordinator::Member {
  MemberStatus status;
  std::weak_ptr<Session> session;
  uint64_t session_key = 0;
  bool same_machine = false;
  uint64_t progress = 0;
  Duration silent{0};
  Duration next_report{0};
  std::optional<Loop::TimerId> grace_timer;
};

Coordinator::Coordinator(Loop& loop, CoordinatorOptions options, Logger logger, ServerHandler* next)
    : loop_(loop),
      options_(options),
      logger_(std::move(logger)),
      next_(next),
      meetings_(loop,
                [this](Group group) {
                  std::vector<const MemberStatus*> list;
                  for (const Member* member : group_members(group)) list.push_back(&member->status);
                  return list;
                }),
      tick_interval_(std::clamp<Duration>(options.heartbeat_timeout / 10,
                                          std::chrono::milliseconds(5), std::chrono::seconds(1))) {
  const auto add = [this](PeerRole role, uint32_t count) {
    for (uint32_t index = 0; index < count; ++index) {
      auto member = std::make_unique<Member>();
      member->status.id = MemberId{role, index};
      member->next_report = options_.stall_report;
      members_.emplace(member->status.id, std::move(member));
    }
  };
  add(PeerRole::kWorker, options_.worker_num);
  add(PeerRole::kServer, options_.server_num);
}

Coordinator::~Coordinator() {
  if (tick_timer_) loop_.cancel(*tick_timer_);
  for (const auto& [id, member] : members_) {
    if (member->grace_timer) loop_.cancel(*member->grace_timer);
  }
}

void Coordinator::set_on_verdict(std::function<void(const Verdict&)> on_verdict) {
  on_verdict_ = std::move(on_verdict);
}
void Coordinator::set_on_workers_complete(std::function<void()> on_workers_complete) {
  on_workers_complete_ = std::move(on_workers_complete);
}
void Coordinator::set_on_all_complete(std::function<void()> on_all_complete) {
  on_all_complete_ = std::move(on_all_complete);
}

void Coordinator::set_on_stall(StallHandler on_stall) {
  on_stall_ = std::move(on_stall);
}

void Coordinator::start() {
  last_tick_ = loop_.now();
  tick_timer_ = loop_.call_after(tick_interval_, [this] { tick(); });
}

Coordinator::Member* Coordinator::find(MemberId id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : found->second.get();
}

std::vector<MemberStatus> Coordinator::members() const {
  std::vector<MemberStatus> list;
  for (const auto& [id, member] : members_) list.push_back(member->status);
  return list;
}

bool Coordinator::complete(Group group) const {
  const auto list = group_members(group);
  return std::all_of(list.begin(), list.end(), [](const Member* member) {
    return member->status.state == MemberState::kComplete;
  });
}

bool Coordinator::all_complete() const {
  return complete(Group::kAll);
}

std::vector<Coordinator::Member*> Coordinator::group_members(Group group) const {
  std::vector<Member*> list;
  for (const auto& [id, member] : members_) {
    const bool worker = id.role == PeerRole::kWorker;
    const bool training = worker && member->status.state != MemberState::kComplete;
    const bool in = group == Group::kTraining
                        ? training
                        : group == Group::kAll || (group == Group::kWorkers) == worker;
    if (in) list.push_back(member.get());
  }
  return list;
}

Verdict Coordinator::verdict_on(const Member& member, ErrorCode code, std::string reason) const {
  return Verdict{member.status.id, member.status.phase, member.status.step, code,
                 std::move(reason)};
}

// ---- the clock

void Coordinator::tick() {
  // After a stop of this very process nobody else is to blame for the time that passed.
  const Duration elapsed = std::min<Duration>(loop_.now() - last_tick_, tick_interval_ * 2);
  last_tick_ = loop_.now();
  running_ += elapsed;
  tick_timer_ = loop_.call_after(tick_interval_, [this] { tick(); });
  if (verdict_) return;
  check_silence(elapsed);
  if (!verdict_) check_joins();
  if (!verdict_) check_stalls(elapsed);
}

void Coordinator::check_silence(Duration elapsed) {
  for (const auto& [id, member] : members_) {
    if (member->status.state != MemberState::kPresent) continue;
    member->silent += elapsed;
    if (member->silent < options_.heartbeat_timeout) continue;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(member->silent).count();
    return abort(
        verdict_on(*member, ErrorCode::kPeerSilent, str_cat("no heartbeat came for ", ms, " ms")));
  }
}

void Coordinator::check_joins() {
  if (running_ < options_.join_deadline) return;
  for (const auto& [id, member] : members_) {
    if (member->status.state != MemberState::kAbsent) continue;
    const auto s = std::chrono::duration_cast<std::chrono::seconds>(running_).count();
    return abort(verdict_on(*member, ErrorCode::kDeadline,
                            str_cat("it did not join the job within ", s, " s")));
  }
}

Coordinator::Member* Coordinator::stall_culprit(Duration longer_than) {
  Member* culprit = nullptr;
  const auto consider = [&](Member* member) {
    if (culprit == nullptr || member->status.step < culprit->status.step) culprit = member;
  };
  bool all_wait = true;
  for (const auto& [id, member] : members_) {
    const bool absent = member->status.state == MemberState::kAbsent;
    if (!absent && member->status.state != MemberState::kPresent) continue;
    const bool still = member->status.unchanged >= longer_than;
    if (absent || !phase_waits(member->status.phase)) {
      all_wait = false;
      if (still) consider(member.get());
    } else if (!still && id.role == PeerRole::kWorker) {
      all_wait = false;
    }
  }
  if (culprit != nullptr || !all_wait) return culprit;
  // Everybody waits for somebody: the one that is furthest behind.
  for (Member* member : group_members(Group::kWorkers)) {
    if (member->status.state == MemberState::kPresent) consider(member);
  }
  return culprit;
}

// Others wait since about then; those whose wait has just begun will go on.
Stall Coordinator::stall_of(const Member& culprit) const {
  const MemberStatus& status = culprit.status;
  Stall stall{status.id, status.phase, status.step, status.unchanged, {}, {}};
  for (const Member* member : group_members(Group::kWorkers)) {
    if (member == &culprit || member->status.state != MemberState::kPresent) continue;
    const bool waits =
        phase_waits(member->status.phase) || member->status.phase == Phase::kConnecting;
    if (waits && member->status.unchanged * 2 >= status.unchanged) {
      stall.waiting.push_back(member->status.id);
      if (stall.missing_from.empty()) stall.missing_from = member->status.awaits;
    }
  }
  return stall;
}

void Coordinator::tell_stall(const Member* culprit) {
  const bool before = std::exchange(stalled_, culprit != nullptr);
  if (!on_stall_ || !(before || stalled_)) return;
  on_stall_(stalled_ ? std::optional<Stall>(stall_of(*culprit)) : std::nullopt);
}

void Coordinator::check_stalls(Duration elapsed) {
  for (const auto& [id, member] : members_) {
    const bool counts = member->status.state == MemberState::kPresent ||
                        member->status.state == MemberState::kAbsent;
    if (counts) member->status.unchanged += elapsed;
  }
  Member* const culprit = stall_culprit(std::min(options_.stall_report, options_.stall_deadline));
  tell_stall(culprit);
  if (culprit == nullptr) return;
  const bool absent = culprit->status.state == MemberState::kAbsent;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(culprit->status.unchanged).count();
  const Stall stall = stall_of(*culprit);
  if (culprit->status.unchanged >= options_.stall_deadline) {
    std::string reason =
        str_cat(absent ? "it has not joined the job for " : "it lives but has not advanced for ",
                seconds, " s");
    if (!stall.missing_from.empty()) {
      reason += str_cat(", and is missing from ", stall.missing_from);
    }
    return abort(verdict_on(*culprit, ErrorCode::kPeerStalled, std::move(reason)));
  }
  if (culprit->status.unchanged < culprit->next_report) return;
  culprit->next_report += options_.stall_report;
  logger_.warning("coordinator", absent ? "a process has not joined" : "a process does not advance",
                  {{"who", culprit->status.id.to_string()},
                   {"phase", phase_name(culprit->status.phase)},
                   {"step", culprit->status.step},
                   {"for_s", seconds},
                   {"waiting", waiting_text(stall.waiting)},
                   {"missing_from", stall.missing_from},
                   {"waits", join(waits(), "; ")}});
}

// ---- members

Status Coordinator::admit(const Hello& peer) {
  Status status = incarnations_.admit(peer);
  return status.ok() && next_ != nullptr ? next_->admit(peer) : status;
}

Loop* Coordinator::on_open(Session& session) {
  Member* const member = find(session.peer().member);
  if (member != nullptr) {
    member->session = session.weak_from_this();
    member->session_key = session.id();
    member->same_machine = session.same_machine();
    member->silent = Duration(0);
    if (member->status.state == MemberState::kAbsent) {
      member->status.unchanged = Duration(0);
      member->next_report = options_.stall_report;
    }
    if (member->status.state != MemberState::kComplete) {
      member->status.state = MemberState::kPresent;
    }
    if (member->grace_timer) loop_.cancel(*member->grace_timer);
    member->grace_timer.reset();
    if (verdict_) {
      Message news;
      news.header.verb = Verb::kAbort;
      news.control = encode(*verdict_);
      session.send(std::move(news));
    } else if (workers_told_) {
      tell_workers_complete(*member);
    } else if (saves_asked_ > 0) {
      tell_to_save(*member);
    }
  }
  return next_ != nullptr ? next_->on_open(session) : nullptr;
}

void Coordinator::on_closed(Session& session, const Status& why) {
  meetings_.on_closed(session);
  Member* const member = find(session.peer().member);
  // A member that came back before its old connection was seen to end has another session.
  const bool current = member != nullptr && member->session_key == session.id();
  if (current && member->status.state == MemberState::kPresent && !verdict_) {
    await_return(*member, options_.reconnect_grace.after_loss(member->same_machine),
                 why.ok() ? std::string("it left without completing") : why.text().what);
  }
  if (next_ != nullptr) next_->on_closed(session, why);
}

void Coordinator::await_return(Member& member, Duration grace, std::string why) {
  member.status.state = MemberState::kDisconnected;
  if (member.grace_timer) loop_.cancel(*member.grace_timer);
  member.grace_timer = loop_.call_after(grace, [this, id = member.status.id, why = std::move(why)] {
    find(id)->grace_timer.reset();
    member_lost(id, why);
  });
}

void Coordinator::member_lost(MemberId id, std::string why) {
  const Member* const member = find(id);
  if (member->status.state != MemberState::kDisconnected) return;
  abort(verdict_on(*member, ErrorCode::kPeerLost, std::move(why)));
}

PayloadTarget Coordinator::prepare_payload(Session& session, const FrameHeader& header,
                                           ConstBytes control) {
  if (header.verb == Verb::kReduce && find(session.peer().member) != nullptr) {
    return meetings_.prepare_payload(session, header);
  }
  return next_ != nullptr ? next_->prepare_payload(session, header, control)
                          : PayloadTarget::discard();
}

void Coordinator::on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                           MutableBytes payload) {
  Member* const member = find(session.peer().member);
  if (member != nullptr) {
    member->silent = Duration(0);
    switch (header.verb) {
      case Verb::kHeartbeat:
        return on_heartbeat(*member, session, header, control);
      case Verb::kReduce:
        return meetings_.on_reduce(member->status.id, session, header, control);
      case Verb::kComplete:
        return on_complete(*member, session, header, control);
      case Verb::kAbort:
        return on_abort(*member, session, header, control);
      case Verb::kSave:
        return on_save(session, header);
      default:
        break;
    }
  }
  if (session.peer().member.role == PeerRole::kLauncher && header.verb == Verb::kAbort) {
    return on_death(session, header, control);
  }
  if (next_ != nullptr) return next_->on_frame(session, header, control, payload);
  if (header.request_id == 0) return;
  session.send(make_error_reply(
      header, Status(ErrorCode::kNotSupported,
                     {.what = str_cat("the coordinator has no verb '", verb_name(header.verb), "'"),
                      .where = session.describe(),
                      .expected = {},
                      .got = {},
                      .fix = {}})));
}

void Coordinator::on_heartbeat(Member& member, Session& session, const FrameHeader& header,
                               ConstBytes control) {
  const auto decoded = decode<HeartbeatNote>(control, "heartbeat");
  if (!decoded.ok() || static_cast<uint8_t>(decoded.value().phase) >= kPhaseCount) {
    return session.send(make_error_reply(
        header, decoded.ok() ? Status(ErrorCode::kBadFrame, {.what = "unknown phase",
                                                             .where = "heartbeat",
                                                             .expected = {},
                                                             .got = {},
                                                             .fix = {}})
                             : decoded.status()));
  }
  const HeartbeatNote& note = decoded.value();
  MemberStatus& status = member.status;
  status.awaits = note.awaits;
  if (note.phase != status.phase || note.step != status.step || note.progress != member.progress) {
    status.phase = note.phase;
    status.step = note.step;
    member.progress = note.progress;
    status.unchanged = Duration(0);
    member.next_report = options_.stall_report;
  }
  session.send(make_reply(header));
}

void Coordinator::tell_workers_complete(const Member& server) {
  if (server.status.id.role != PeerRole::kServer) return;
  Message news;
  news.header.verb = Verb::kComplete;
  if (const auto open = server.session.lock()) open->send(std::move(news));
}

void Coordinator::on_save(Session& session, const FrameHeader& header) {
  ++saves_asked_;
  session.send(make_reply(header));
  for (const Member* worker : group_members(Group::kTraining)) tell_to_save(*worker);
  meetings_.give_way(saves_asked_);
}

void Coordinator::tell_to_save(const Member& worker) {
  Message news;
  news.header.verb = Verb::kSave;
  news.header.step = saves_asked_;
  if (const auto open = worker.session.lock()) open->send(std::move(news));
}

void Coordinator::on_complete(Member& member, Session& session, const FrameHeader& header,
                              ConstBytes control) {
  CompleteNote left;
  if (!control.empty()) {
    auto decoded = decode<CompleteNote>(control, "complete");
    if (!decoded.ok()) return session.send(make_error_reply(header, decoded.status()));
    left = std::move(decoded).value();
  }
  session.send(make_reply(header));
  if (member.status.state == MemberState::kComplete || verdict_) return;
  member.status.state = MemberState::kComplete;
  meetings_.on_complete(member.status.id, std::move(left));
  if (complete(Group::kWorkers) && !std::exchange(workers_told_, true)) {
    for (const Member* server : group_members(Group::kServers)) tell_workers_complete(*server);
    if (on_workers_complete_) on_workers_complete_();
  }
  if (all_complete() && !std::exchange(all_told_, true) && on_all_complete_) on_all_complete_();
}

// ---- the verdict

void Coordinator::on_abort(const Member& member, Session& session, const FrameHeader& header,
                           ConstBytes control) {
  session.send(make_reply(header));
  auto decoded = decode<Verdict>(control, "abort");
  if (!decoded.ok()) {
    return abort(verdict_on(member, ErrorCode::kJobAborted, "it ended the job"));
  }
  Verdict verdict = std::move(decoded.value());
  if (!is_sensible(verdict)) {
    verdict = verdict_on(member, ErrorCode::kJobAborted, verdict.reason);
  }
  if (verdict.reason.size() > kMaxReason) verdict.reason.resize(kMaxReason);
  abort(std::move(verdict));
}

bool Coordinator::is_sensible(const Verdict& verdict) const {
  return find(verdict.culprit) != nullptr && static_cast<uint8_t>(verdict.phase) < kPhaseCount &&
         static_cast<size_t>(verdict.code) < error_table().size() && verdict.code != ErrorCode::kOk;
}

// A launcher's word proves that the process has ended. What that has sent itself, such as why it
// ends the job or that it has completed, may still be on its way.
void Coordinator::on_death(Session& session, const FrameHeader& header, ConstBytes control) {
  session.send(make_reply(header));
  auto decoded = decode<Verdict>(control, "a launcher's notice");
  if (verdict_ || !decoded.ok() || !is_sensible(decoded.value())) return;
  Member& member = *find(decoded.value().culprit);
  if (member.status.state == MemberState::kComplete) return;
  std::string& reason = decoded.value().reason;
  if (reason.size() > kMaxReason) reason.resize(kMaxReason);
  await_return(member, options_.reconnect_grace.after_loss(true), std::move(reason));
}

void Coordinator::abort(Verdict verdict) {
  if (verdict_) return;
  verdict_ = std::move(verdict);
  logger_.error("coordinator", "the job ends",
                {{"culprit", verdict_->culprit.to_string()},
                 {"phase", phase_name(verdict_->phase)},
                 {"step", verdict_->step},
                 {"reason", verdict_->reason}});
  const auto news = encode(*verdict_);
  for (const auto& [id, member] : members_) {
    const auto session = member->session.lock();
    if (!session) continue;
    Message message;
    message.header.verb = Verb::kAbort;
    message.control = news;
    session->send(std::move(message));
  }
  meetings_.end(verdict_->to_status());
  if (on_verdict_) on_verdict_(*verdict_);
}

}  // namespace fleet::transport
