// Which address of this machine others know it by.
#pragma once

#include <string>

#include "base/net/endpoint.h"

namespace fleet {

// The address that packets to the endpoint are sent from: loopback for loopback. Asks the kernel's
// routes and sends nothing. Throws PeerError when the host is not known or cannot be reached.
std::string own_address_towards(const Endpoint& endpoint);

}  // namespace fleet
