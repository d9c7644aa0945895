// For trainers that do not wait for their servers (wait_port false).
#pragma once

#include <vector>

#include "base/clock.h"
#include "transport/link/link.h"

namespace fleet::strategies {

// Returns when each of the servers has accepted a connection, which is closed again. Throws
// PeerError (kPeerLost) that names the first one that does not listen, at once, or does not answer
// until the deadline.
void require_listening(const std::vector<Endpoint>& servers, transport::TransportChoice transport,
                       Duration deadline);

}  // namespace fleet::strategies
