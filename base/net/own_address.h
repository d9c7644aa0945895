// Which address of this machine others know it by.
//
// FLEET_SOCKET_IFNAME names the interface whose address it is: one, or several separated by commas,
// of which the first that is there counts. Here it is a parameter, empty where nobody chose; then
// routes decide, and bridges of containers and virtual machines (docker0 and the like) are never
// guessed.
#pragma once

#include <string>

#include "base/net/endpoint.h"

namespace fleet {

// The address that packets to the endpoint are sent from: loopback for loopback. Asks the kernel's
// routes and sends nothing. Of chosen interfaces, the address of the endpoint's family if there is
// one. Throws PeerError when the host is not known or cannot be reached, UsageError when no such
// interface is up, with those that are.
std::string own_address_towards(const Endpoint& endpoint, const std::string& interfaces = "");

// An address by which other machines reach this one: the IPv4 address that its default route sends
// from; without such a route the first one that is up and not loopback, or 127.0.0.1. Throws as
// above.
std::string machine_address(const std::string& interfaces = "");

}  // namespace fleet
