// Ports of this machine that are free, and stay so until the process that wants one starts.
#pragma once

#include <string>
#include <vector>

#include "launch/process/file_descriptor.h"

namespace fleet::launch {

// Holds each port with a bound socket that does not listen. release() lets one go just before its
// owner starts; what remains of the race is the time from there to the owner's own bind(). Ports
// are chosen below the kernel's ephemeral range where there is room, so that no connect() and no
// bind(0) of another process can take one in that time.
class PortReservation {
 public:
  // `count` free ports of the address.
  static PortReservation any(const std::string& host, int count);
  // These endpoints ("host:port"). Throws ResourceError that names the endpoint, and the process
  // that holds it where that can be seen, when one is taken or is not of this machine.
  static PortReservation of(const std::vector<std::string>& endpoints);

  const std::vector<std::string>& endpoints() const { return endpoints_; }
  void release(size_t index) { sockets_.at(index).reset(); }

 private:
  std::vector<std::string> endpoints_;
  std::vector<FileDescriptor> sockets_;
};

struct HostPort {
  std::string host;
  int port = 0;
};
// Throws UsageError unless the text is "host:port" with a port of 1 to 65535.
HostPort parse_endpoint(const std::string& text);

}  // namespace fleet::launch
