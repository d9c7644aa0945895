#include "transport/coordinator/membership.h"

#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr const char* kSaveFirst = "a checkpoint is to be made first";

std::string_view what_happened(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPeerLost:
      return "was lost";
    case ErrorCode::kPeerSilent:
      return "fell silent";
    case ErrorCode::kPeerStalled:
      return "stood still";
    default:
      return "ended the job";
  }
}

}  // namespace

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kConnecting:
      return "connecting";
    case Phase::kInitialising:
      return "initialising";
    case Phase::kComputing:
      return "computing";
    case Phase::kSending:
      return "sending";
    case Phase::kReceiving:
      return "receiving";
    case Phase::kBarrier:
      return "barrier";
    case Phase::kReducing:
      return "reducing";
    case Phase::kUpdating:
      return "updating";
    case Phase::kServing:
      return "serving";
    case Phase::kSaving:
      return "saving";
    case Phase::kLoading:
      return "loading";
    case Phase::kFinishing:
      return "finishing";
  }
  return "unknown";
}

bool phase_waits(Phase phase) {
  return phase == Phase::kReceiving || phase == Phase::kBarrier || phase == Phase::kReducing ||
         phase == Phase::kServing || phase == Phase::kFinishing;
}

std::string_view group_name(Group group) {
  switch (group) {
    case Group::kWorkers:
      return "workers";
    case Group::kServers:
      return "servers";
    case Group::kAll:
      return "all";
    case Group::kTraining:
      return "workers that train";
  }
  return "unknown";
}

std::string one_line(const Status& status) {
  const ErrorText& text = status.text();
  std::string line = text.what;
  const auto add = [&line](std::string_view label, const std::string& value) {
    if (!value.empty()) line += str_cat("; ", label, value);
  };
  add("at ", text.where);
  add("expected ", text.expected);
  add("got ", text.got);
  return line;
}

std::string Stall::to_line() const {
  const auto name = [](const MemberId& id) {
    return str_cat(id.role == PeerRole::kWorker ? "worker/" : "server/", id.index);
  };
  std::vector<std::string> names;
  for (const MemberId& id : waiting) names.push_back(name(id));
  std::string line =
      str_cat("stall who=", name(culprit), " phase=", phase_name(phase), " step=", step,
              " for_s=", std::chrono::duration_cast<std::chrono::seconds>(unchanged).count());
  if (!names.empty()) line += " waiting=" + join(names, ",");
  return line;
}

Status save_first(const std::string& meeting) {
  return Status(ErrorCode::kCancelled, {.what = kSaveFirst,
                                        .where = str_cat("meeting '", meeting, "'"),
                                        .expected = {},
                                        .got = {},
                                        .fix = "save with the others, and call again"});
}

bool is_save_first(const Status& status) {
  return status.code() == ErrorCode::kCancelled && status.text().what == kSaveFirst;
}

Verdict left_early(MemberId member, Phase phase, uint64_t step) {
  return Verdict{member, phase, step, ErrorCode::kJobAborted, "it left before it had completed"};
}

Status Verdict::to_status() const {
  return Status(code, {.what = str_cat(culprit.to_string(), ' ', what_happened(code), " in phase ",
                                       phase_name(phase), " at step ", step, ": ", reason),
                       .where = culprit.to_string(),
                       .expected = {},
                       .got = {},
                       .fix = std::string(error_info(code).remedy)});
}

}  // namespace fleet::transport
