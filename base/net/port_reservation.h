// Ports of this machine that are free, and stay so until the process that wants one starts.
#pragma once

#include <string>
#include <vector>

#include "base/net/endpoint.h"
#include "base/process/file_descriptor.h"

namespace fleet {

// Holds each port with a bound socket that does not listen, and chooses ports below the kernel's
// ephemeral range where there is room, so that no connect() and no bind(0) of another process takes
// one.
class PortReservation {
 public:
  PortReservation() = default;
  // `count` free ports of a host: a name or an address of this machine, or "0.0.0.0" or "::" for
  // all its addresses. Throws UsageError or ResourceError when there are none.
  static PortReservation any(const std::string& host, int count);
  // These endpoints. Throws ResourceError that names the endpoint, and the process that holds it
  // where that can be seen, when one is taken or is not of this machine; UsageError that names
  // `where`, the option that has them, when one occurs twice.
  static PortReservation of(const std::vector<Endpoint>& endpoints, const std::string& where);

  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  // From now on sockets with SO_REUSEADDR, as those of servers are, may bind the port and listen
  // there; no other reservation gets it, also when its server has ended and is to be started again.
  void lend(size_t index);

 private:
  std::vector<Endpoint> endpoints_;
  std::vector<FileDescriptor> sockets_;
};

}  // namespace fleet
