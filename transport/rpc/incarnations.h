// Which process is which member of a job.
#pragma once

#include <cstdint>
#include <map>

#include "transport/session/handshake.h"

namespace fleet::transport {

// The first process that comes as a member is that member, on every lane and to the end of the job.
// Belongs to the loop that admits connections.
class Incarnations {
 public:
  // Ok for the process that is the member, or comes first as it, and for launchers and tools.
  // kHandshakeRefused with both incarnations for any other.
  Status admit(const Hello& peer);

 private:
  std::map<MemberId, uint64_t> known_;
};

}  // namespace fleet::transport
