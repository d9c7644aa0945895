// What launch and its agents say to each other over a Unix socket of this machine.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/environment.h"
#include "base/process/file_descriptor.h"
#include "launch/process/child.h"

namespace fleet::launch {

// A kind and its fields. On the socket: the length as four bytes (little endian), then every
// field followed by a zero byte; no field holds a zero byte.
//   agent → launcher   hello token rank ("agent" | "progress")
//                      started pid · exited code signal core · stopped · continued
//                      refused why · asked (mpirun tells it to end) · orphaned (mpirun or launch
//                      is gone) · pong
//   launcher → agent   start … (StartOrder) · end (SIGTERM) · kill · ping
struct AgentMessage {
  std::vector<std::string> fields;
  const std::string& kind() const { return fields.front(); }
  // Field i as a number, or 0.
  long long number(size_t i) const;
};

// What an agent runs.
struct StartOrder {
  std::string log_file;
  std::string program;
  bool progress = false;
  std::vector<std::string> argv;
  Environment set;                 // variables to set …
  std::vector<std::string> unset;  // … and to remove

  AgentMessage to_message() const;
  static std::optional<StartOrder> from_message(const AgentMessage& message);
};

// One end of the socket.
class AgentChannel {
 public:
  explicit AgentChannel(FileDescriptor socket) : socket_(std::move(socket)) {}
  int fd() const { return socket_.get(); }
  // False when the other end is gone, or does not read for two seconds.
  bool send(const AgentMessage& message);
  // Reads what is there; messages that are complete are appended. False at the end of the stream
  // or after bytes that are no message.
  bool receive(std::vector<AgentMessage>& messages);
  // Gives the socket away, for a stream of lines instead of messages, with the bytes that were
  // read already.
  std::pair<FileDescriptor, std::string> detach();

 private:
  FileDescriptor socket_;
  std::string buffer_;
};

// A listening socket in the abstract namespace; `name` without the leading zero byte.
FileDescriptor listen_abstract(const std::string& name);
FileDescriptor connect_abstract(const std::string& name);
// Nothing unless a process of this user connected.
std::optional<FileDescriptor> accept_own_user(int listener, pid_t& peer);

}  // namespace fleet::launch
