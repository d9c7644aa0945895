// A process in the middle: accepts connections and passes their bytes on to a TCP port, both ways.
#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/strings.h"
#include "transport/link/bytes.h"

namespace fleet::transport::testing {

// A socket that listens on the abstract name of a server's port; negative when it is taken.
inline int listen_on_unix_name(uint16_t port) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = str_cat("fleet-", port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 && ::listen(fd, 8) == 0) {
    return fd;
  }
  ::close(fd);
  return -1;
}

// A socket that listens on a free TCP port of this machine, which is said in `port`.
inline int listen_on_tcp(uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool listens = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::listen(fd, 8) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!listens) address.sin_port = 0;
  port = ntohs(address.sin_port);
  return fd;
}

class Relay {
 public:
  // Called for what is passed on, before it is: `to_server` tells the way, `at` the offset of the
  // first byte in that way over all connections. On a thread of the relay's, one call at a time.
  using Touch = std::function<void(bool to_server, size_t at, MutableBytes bytes)>;

  // Owns `listener`.
  Relay(int listener, uint16_t server_port, Touch touch = {})
      : listener_(listener), server_port_(server_port), touch_(std::move(touch)) {
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Relay() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& pump : pumps_) pump.join();
    ::close(listener_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  size_t bytes(bool to_server) const { return passed_[to_server ? 1 : 0]; }
  int connections() const { return connections_; }

 private:
  static bool readable(int fd) {
    pollfd wanted{fd, POLLIN, 0};
    return ::poll(&wanted, 1, 20) > 0;
  }

  void accept_all() {
    while (!stopping_) {
      if (!readable(listener_)) continue;
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) continue;
      ++connections_;
      pumps_.emplace_back([this, client] { pump(client); });
    }
  }

  void pump(int client) {
    const int server = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_port_);
    if (::connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      while (!stopping_ && pass(client, server, true) && pass(server, client, false)) {
      }
    }
    ::close(client);
    ::close(server);
  }

  // False when a side has closed.
  bool pass(int from, int to, bool to_server) {
    pollfd wanted{from, POLLIN, 0};
    if (::poll(&wanted, 1, 1) <= 0) return true;
    std::vector<std::byte> buffer(64 * 1024);
    const ssize_t got = ::recv(from, buffer.data(), buffer.size(), 0);
    if (got <= 0) return false;
    const MutableBytes bytes(buffer.data(), static_cast<size_t>(got));
    {
      const std::lock_guard lock(mutex_);
      const size_t at = passed_[to_server ? 1 : 0].fetch_add(bytes.size());
      if (touch_) touch_(to_server, at, bytes);
    }
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t put = ::send(to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (put <= 0) return false;
      sent += static_cast<size_t>(put);
    }
    return true;
  }

  int listener_;
  uint16_t server_port_;
  Touch touch_;
  std::mutex mutex_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> connections_ = 0;
  std::atomic<size_t> passed_[2] = {0, 0};
  std::thread acceptor_;
  std::vector<std::thread> pumps_;
};

}  // namespace fleet::transport::testing
