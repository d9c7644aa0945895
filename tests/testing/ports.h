// Ports of this machine for tests.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fleet::testing {

// A port that the kernel gave, and gives to nobody else while this lives: a socket stays bound to
// it and does not listen, so that who is told the port can listen on it with SO_REUSEADDR.
class HeldPort {
 public:
  HeldPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int reuse = 1;
    EXPECT_EQ(setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~HeldPort() {
    if (socket_ >= 0) close(socket_);
  }
  HeldPort(HeldPort&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), port_(other.port_) {}
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  HeldPort& operator=(HeldPort&&) = delete;

  uint16_t port() const { return port_; }

 private:
  int socket_;
  uint16_t port_ = 0;
};

// Held until the test program ends. Of one thread at a time.
inline int free_port() {
  static std::vector<HeldPort> held;
  return held.emplace_back().port();
}

}  // namespace fleet::testing
