#include "base/error.h"

#include <array>
#include <utility>

namespace fleet {
namespace {

constexpr std::array kTable = {
    ErrorInfo{ErrorCode::kOk, "OK", "Nothing went wrong.", "Nothing to do."},
    ErrorInfo{ErrorCode::kInvalidArgument, "INVALID_ARGUMENT",
              "An argument or option has a value that cannot be used.",
              "Give the named field a value of the expected form."},
    ErrorInfo{ErrorCode::kUnknownName, "UNKNOWN_NAME",
              "A key, flag, op, variable or layer of that name does not exist.",
              "Check the spelling; the message names the nearest known name."},
    ErrorInfo{ErrorCode::kPrecondition, "PRECONDITION",
              "A function was called before what it needs was done.",
              "Make the call that the message names first."},
    ErrorInfo{
        ErrorCode::kEnvironment, "ENVIRONMENT",
        "A role variable of the environment is missing, contradicts another or cannot be read.",
        "Set the named variable, or start the processes with launch or launch_ps."},
    ErrorInfo{ErrorCode::kInvalidProgram, "INVALID_PROGRAM",
              "A program refers to something that it does not have, or has an op used wrongly.",
              "Correct the layer call that made the named op."},
    ErrorInfo{ErrorCode::kShapeMismatch, "SHAPE_MISMATCH", "Shapes do not fit together.",
              "Compare the expected and the given shape; the op and the variable are named."},
    ErrorInfo{ErrorCode::kDTypeMismatch, "DTYPE_MISMATCH", "Element types do not fit together.",
              "Cast one side, or declare the data layer with the type that is fed."},
    ErrorInfo{ErrorCode::kFeed, "FEED",
              "A feed is missing, unknown, or of the wrong shape or type.",
              "Feed every data variable of the program, and nothing else."},
    ErrorInfo{ErrorCode::kUnevenBatch, "UNEVEN_BATCH",
              "The rows of a step cannot be cut into equal parts for the logical shards.",
              "Use a batch size that is a multiple of the number of shards."},
    ErrorInfo{ErrorCode::kNumerics, "NUMERICS", "A NaN or an infinity was found.",
              "Look at the op that the message names; lower the learning rate or clip gradients."},
    ErrorInfo{
        ErrorCode::kPeerLost, "PEER_LOST", "A process of the job died or closed its connection.",
        "Read the log of the rank that is named; it is the cause, not the process that reports."},
    ErrorInfo{ErrorCode::kPeerSilent, "PEER_SILENT",
              "A process of the job has sent no heartbeat for heartbeat_timeout.",
              "See whether the named rank is stopped, its machine down, or its network cut."},
    ErrorInfo{
        ErrorCode::kPeerStalled, "PEER_STALLED",
        "A process lives but has not advanced for stall_deadline.",
        "Look at the phase that is named; send SIGUSR1 to that process for its list of waits."},
    ErrorInfo{
        ErrorCode::kDeadline, "DEADLINE", "A request made no progress within its deadline.",
        "Check that the named peer is up and reachable; FLAGS_rpc_deadline sets the bound in ms."},
    ErrorInfo{ErrorCode::kHandshakeRefused, "HANDSHAKE_REFUSED",
              "Two processes do not belong to the same job, or disagree about it.",
              "Start every process of the job from the same build, program, options and job id."},
    ErrorInfo{ErrorCode::kAuthentication, "AUTHENTICATION",
              "A connection did not prove that it knows the job's secret, or there is none.",
              "Set the same FLEET_JOB_SECRET for every process; launch and launch_ps make one."},
    ErrorInfo{ErrorCode::kBadFrame, "BAD_FRAME", "Bytes on a connection are not a valid frame.",
              "Look for a foreign program that uses the port, or a mixed set of versions."},
    ErrorInfo{ErrorCode::kAddressInUse, "ADDRESS_IN_USE", "A port is already taken.",
              "End the process that holds it, or choose another port."},
    ErrorInfo{ErrorCode::kJobAborted, "JOB_ABORTED", "The job ended because of another process.",
              "Read the culprit's log; the message names its rank, phase and step."},
    ErrorInfo{ErrorCode::kInput, "INPUT", "A file or stream could not be read or written.",
              "Check the path, the permissions and the free space."},
    ErrorInfo{ErrorCode::kCorruptFile, "CORRUPT_FILE",
              "A file does not have the form it should have.",
              "Write the file again; the message names the first field that does not fit."},
    ErrorInfo{ErrorCode::kNotSupported, "NOT_SUPPORTED", "This build or mode cannot do that.",
              "The message names what can."},
    ErrorInfo{ErrorCode::kCancelled, "CANCELLED", "The user ended the job.", "Nothing to do."},
    ErrorInfo{ErrorCode::kInternal, "INTERNAL", "A defect of this library.",
              "Please report it with the whole message."},
    ErrorInfo{ErrorCode::kNoMemory, "NO_MEMORY",
              "A process has used up the memory that it may have.",
              "Raise its memory limit, or use smaller batches or tables, or more servers."},
};

}  // namespace

std::span<const ErrorInfo> error_table() {
  return kTable;
}

const ErrorInfo& error_info(ErrorCode code) {
  return kTable[static_cast<size_t>(code)];
}

std::string ErrorText::to_string() const {
  std::string text = what;
  const auto line = [&text](std::string_view label, const std::string& value) {
    if (!value.empty()) text.append("\n  ").append(label).append(": ").append(value);
  };
  line("where", where);
  line("expected", expected);
  line("got", got);
  line("fix", fix);
  return text;
}

Error::Error(ErrorCode code, ErrorText text)
    : std::runtime_error(text.to_string()), code_(code), text_(std::move(text)) {}

void throw_error(ErrorCode code, ErrorText text) {
  switch (code) {
    case ErrorCode::kInvalidProgram:
    case ErrorCode::kShapeMismatch:
    case ErrorCode::kDTypeMismatch:
    case ErrorCode::kFeed:
    case ErrorCode::kUnevenBatch:
    case ErrorCode::kNumerics:
      throw ProgramError(code, std::move(text));
    case ErrorCode::kPeerLost:
    case ErrorCode::kPeerSilent:
    case ErrorCode::kPeerStalled:
    case ErrorCode::kDeadline:
    case ErrorCode::kHandshakeRefused:
    case ErrorCode::kAuthentication:
    case ErrorCode::kBadFrame:
    case ErrorCode::kJobAborted:
      throw PeerError(code, std::move(text));
    case ErrorCode::kAddressInUse:
    case ErrorCode::kInput:
    case ErrorCode::kCorruptFile:
    case ErrorCode::kNoMemory:
      throw ResourceError(code, std::move(text));
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnknownName:
    case ErrorCode::kPrecondition:
    case ErrorCode::kEnvironment:
      throw UsageError(code, std::move(text));
    default:
      throw Error(code, std::move(text));
  }
}

int exit_code(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error) != nullptr) return 2;
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->code() == ErrorCode::kCancelled ? kExitRequeue : 1;
}

}  // namespace fleet
