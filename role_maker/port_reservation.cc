#include "role_maker/port_reservation.h"

#include <arpa/inet.h>
#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "base/error.h"

namespace fleet::role_maker {
namespace {

constexpr int kLastPort = 65535;
constexpr int kEnoughRoom = 1000;
constexpr int kAttempts = 200;

// The last port of the range for outgoing connections.
int last_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  int last = kLastPort;
  file >> first >> last;
  return file ? last : kLastPort;
}

}  // namespace

PortReservation::PortReservation(PortReservation&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), port_(std::exchange(other.port_, 0)) {}

PortReservation& PortReservation::operator=(PortReservation&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(port_, other.port_);
  return *this;
}

PortReservation::~PortReservation() {
  if (socket_ >= 0) close(socket_);
}

// Without SO_REUSEADDR, so that the port is refused to everybody else while it is held.
bool PortReservation::bind_to(int port) {
  PortReservation fresh;
  fresh.socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fresh.socket_ < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(fresh.socket_, generic, sizeof address) != 0) return false;
  socklen_t length = sizeof address;
  if (getsockname(fresh.socket_, generic, &length) != 0) return false;
  fresh.port_ = ntohs(address.sin_port);
  *this = std::move(fresh);
  return true;
}

PortReservation PortReservation::any() {
  PortReservation result;
  const int first = last_ephemeral_port() + 1;
  if (kLastPort - first >= kEnoughRoom) {
    std::random_device random;
    std::uniform_int_distribution<int> pick(first, kLastPort);
    for (int i = 0; i < kAttempts; ++i) {
      if (result.bind_to(pick(random))) return result;
    }
  }
  if (result.bind_to(0)) return result;
  throw_error(ErrorCode::kAddressInUse, {.what = "no TCP port is free on this machine",
                                         .where = "MPISymetricRoleMaker",
                                         .expected = "one port to listen on",
                                         .got = "bind failed for every port that was tried",
                                         .fix = "end processes that hold ports"});
}

}  // namespace fleet::role_maker
