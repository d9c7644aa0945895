// Where a process of a job listens: one type and one reading of its text for the environment, the
// command line and the transport.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace fleet {

struct Endpoint {
  std::string host;   // a name, an IPv4 address, or an IPv6 address without brackets
  uint16_t port = 0;  // 0 only where the kernel is to choose one

  // "host:port" or "[IPv6 address]:port" with a port from 1 to 65535; blanks around it are left
  // out. `where` is the field, option or variable that has the text. Else a status of `code` that
  // names it.
  static Result<Endpoint> parse(std::string_view text, std::string_view where,
                                ErrorCode code = ErrorCode::kInvalidArgument);
  // As parse() reads it.
  std::string to_string() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

std::vector<std::string> to_strings(const std::vector<Endpoint>& endpoints);

// A host that stands alone, as in POD_IP or --node_ip: without the brackets that an IPv6 address
// may have there.
std::string bare_host(std::string_view text);

}  // namespace fleet
