#include "base/net/port_reservation.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <random>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"

namespace fleet {
namespace {

constexpr int kLowestPort = 10240;
constexpr int kMinimumRoom = 4096;

// An address of either family.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* plain() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* plain() const { return reinterpret_cast<const sockaddr*>(&storage); }
  // Both families have it at the same place.
  uint16_t port() const { return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port); }
  void set_port(uint16_t port) { reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port); }
};

SocketAddress resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &found);
  if (rc != 0 || found == nullptr) {
    throw_error(ErrorCode::kInput, {.what = "the host name cannot be resolved",
                                    .where = endpoint.host,
                                    .expected = "a name or an address of this machine",
                                    .got = ::gai_strerror(rc),
                                    .fix = "give its address, such as 127.0.0.1 or ::1"});
  }
  SocketAddress address;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  address.set_port(endpoint.port);
  return address;
}

FileDescriptor bind_to(const SocketAddress& address, bool reuse) {
  FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (reuse) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket.get(), address.plain(), address.size) != 0) return FileDescriptor();
  return socket;
}

// A port whose last connections are in TIME_WAIT refuses a plain bind() but is free; a socket
// that listens there refuses both.
FileDescriptor reserve(const SocketAddress& address) {
  FileDescriptor socket = bind_to(address, false);
  if (socket || errno != EADDRINUSE) return socket;
  {
    const FileDescriptor probe = bind_to(address, true);
    if (!probe || ::listen(probe.get(), 1) != 0) return FileDescriptor();
  }
  return bind_to(address, true);
}

std::optional<std::string> listener_in(const char* table_of_sockets, int port) {
  std::ifstream table(table_of_sockets);
  std::string line;
  std::getline(table, line);
  std::ostringstream wanted;
  wanted << ':' << std::uppercase << std::hex;
  wanted.width(4);
  wanted.fill('0');
  wanted << port;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skipped, inode;
    fields >> slot >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skipped;
    fields >> inode;
    if (local.ends_with(wanted.str()) && state == "0A") return inode;
  }
  return std::nullopt;
}

std::optional<std::string> socket_inode_of_listener(int port) {
  const auto inode = listener_in("/proc/net/tcp", port);
  return inode ? inode : listener_in("/proc/net/tcp6", port);
}

// "process 4242 (distributed_train)", as far as /proc shows other processes' descriptors.
std::string holder_of(int port) {
  const auto inode = socket_inode_of_listener(port);
  if (!inode) return "";
  const std::string wanted = "socket:[" + *inode + "]";
  DIR* processes = ::opendir("/proc");
  std::string holder;
  while (const dirent* process = processes ? ::readdir(processes) : nullptr) {
    if (!parse_int(process->d_name)) continue;
    const std::string folder = str_cat("/proc/", process->d_name);
    DIR* files = ::opendir((folder + "/fd").c_str());
    while (const dirent* file = files ? ::readdir(files) : nullptr) {
      char target[64] = {};
      const std::string path = folder + "/fd/" + file->d_name;
      if (::readlink(path.c_str(), target, sizeof(target) - 1) <= 0 || wanted != target) continue;
      std::string name;
      std::getline(std::ifstream(folder + "/comm") >> std::ws, name);
      holder = str_cat("process ", process->d_name, " (", name, ")");
    }
    if (files) ::closedir(files);
  }
  if (processes) ::closedir(processes);
  return holder;
}

[[noreturn]] void refuse(const Endpoint& endpoint, int error) {
  const std::string where = endpoint.to_string();
  if (error == EADDRNOTAVAIL) {
    throw_error(ErrorCode::kInput, {.what = "the endpoint is not of this machine",
                                    .where = where,
                                    .expected = "an address of a local interface",
                                    .got = std::strerror(error),
                                    .fix = "processes are started on this machine only; use "
                                           "127.0.0.1 or an address of it"});
  }
  const std::string holder = error == EADDRINUSE ? holder_of(endpoint.port) : "";
  throw_error(ErrorCode::kAddressInUse,
              {.what = "the port cannot be used",
               .where = where,
               .expected = "a free port",
               .got = holder.empty() ? std::strerror(error) : "it is held by " + holder,
               .fix = "name no port to get free ones (launch_ps without --start_port and "
                      "--endpoints), choose others, or end the process that holds this one"});
}

std::pair<int, int> room_below_ephemeral_ports() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 0;
  file >> low;
  return {kLowestPort, low};
}

}  // namespace

PortReservation PortReservation::any(const std::string& host, int count) {
  const auto [low, high] = room_below_ephemeral_ports();
  const bool choose = high - low >= kMinimumRoom;
  std::random_device random;
  std::uniform_int_distribution<int> pick(low, choose ? high - 1 : low);
  SocketAddress address = resolve({.host = host, .port = 0});
  PortReservation held;
  for (int attempts = 0; static_cast<int>(held.sockets_.size()) < count; ++attempts) {
    const int port = choose && attempts < 200 * count ? pick(random) : 0;
    address.set_port(static_cast<uint16_t>(port));
    FileDescriptor socket = bind_to(address, false);
    if (!socket && port == 0) refuse({.host = host, .port = 0}, errno);
    if (!socket) continue;
    SocketAddress actual;
    ::getsockname(socket.get(), actual.plain(), &actual.size);
    held.endpoints_.push_back({.host = host, .port = actual.port()});
    held.sockets_.push_back(std::move(socket));
  }
  return held;
}

void PortReservation::lend(size_t index) {
  const int on = 1;
  ::setsockopt(sockets_.at(index).get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

PortReservation PortReservation::of(const std::vector<Endpoint>& endpoints,
                                    const std::string& where) {
  PortReservation held;
  for (const Endpoint& endpoint : endpoints) {
    const auto& earlier = held.endpoints_;
    if (std::find(earlier.begin(), earlier.end(), endpoint) != earlier.end()) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "an endpoint is given twice",
                                                .where = where,
                                                .expected = "one endpoint for each process",
                                                .got = endpoint.to_string(),
                                                .fix = "give each process a port of its own"});
    }
    FileDescriptor socket = reserve(resolve(endpoint));
    if (!socket) refuse(endpoint, errno);
    held.endpoints_.push_back(endpoint);
    held.sockets_.push_back(std::move(socket));
  }
  return held;
}

}  // namespace fleet
