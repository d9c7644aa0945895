// Errors of the whole project. The user's mistakes are thrown as subclasses of Error; expected
// events (a peer lost, a deadline, a bad frame) travel inside as Status or Result<T>
// (base/status.h) and become an exception once, at the blocking call.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace fleet {

// Stable identifiers. docs/errors.md is generated from error_table().
enum class ErrorCode {
  kOk,
  kInvalidArgument,
  kUnknownName,
  kPrecondition,
  kEnvironment,
  kInvalidProgram,
  kShapeMismatch,
  kDTypeMismatch,
  kFeed,
  kUnevenBatch,
  kNumerics,
  kPeerLost,
  kPeerSilent,
  kPeerStalled,
  kDeadline,
  kHandshakeRefused,
  kAuthentication,
  kBadFrame,
  kAddressInUse,
  kJobAborted,
  kInput,
  kCorruptFile,
  kNotSupported,
  kCancelled,
  kInternal,
  kNoMemory,
};

struct ErrorInfo {
  ErrorCode code;
  std::string_view name;     // "PEER_LOST"
  std::string_view meaning;  // one sentence
  std::string_view remedy;   // what the reader does about it
};

std::span<const ErrorInfo> error_table();
const ErrorInfo& error_info(ErrorCode code);

// What a message says, in the order it is printed. Empty fields are left out.
struct ErrorText {
  std::string what;   // the mistake, one sentence
  std::string where;  // op, variable, field, file or peer
  std::string expected;
  std::string got;
  std::string fix;

  std::string to_string() const;
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, ErrorText text);
  ErrorCode code() const { return code_; }
  const ErrorText& text() const { return text_; }

 private:
  ErrorCode code_;
  ErrorText text_;
};

// A wrong argument, option, key, call order or environment variable.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A program that cannot be built, verified or run: shapes, dtypes, slots, attributes, feeds.
class ProgramError : public Error {
 public:
  using Error::Error;
};

// A peer is gone, silent, stalled, or refused us; or the job was aborted because of one.
class PeerError : public Error {
 public:
  using Error::Error;
};

// A file, a socket or another resource of the machine.
class ResourceError : public Error {
 public:
  using Error::Error;
};

// Throws the subclass that belongs to the code.
[[noreturn]] void throw_error(ErrorCode code, ErrorText text);

// What a process ends with behind an error: 2 when its user has to mend something; kExitRequeue
// (kCancelled) when it was told to end and can be started again; else 1.
inline constexpr int kExitRequeue = 75;  // EX_TEMPFAIL of sysexits.h
int exit_code(const std::exception& error);

}  // namespace fleet
