#include "transport/rpc/incarnations.h"

#include "base/strings.h"

namespace fleet::transport {

Status Incarnations::admit(const Hello& peer) {
  if (peer.member.role != PeerRole::kWorker && peer.member.role != PeerRole::kServer) return {};
  const auto [known, first] = known_.emplace(peer.member, peer.incarnation);
  if (first || known->second == peer.incarnation) return {};
  return Status(
      ErrorCode::kHandshakeRefused,
      {.what = str_cat("another process is ", peer.member.to_string(), " of this job already"),
       .where = peer.lane == LaneKind::kControl ? "control lane" : "data lane",
       .expected = str_cat("incarnation ", known->second),
       .got = str_cat("incarnation ", peer.incarnation),
       .fix = "end the second process, or give it an index of its own"});
}

}  // namespace fleet::transport
