#include "launch/process/ports.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

constexpr int kLowestPort = 10240;
constexpr int kMinimumRoom = 4096;

sockaddr_in resolve(const HostPort& endpoint) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(endpoint.host.c_str(), nullptr, &hints, &found);
  if (rc != 0 || found == nullptr) {
    throw_error(ErrorCode::kInput, {.what = "the host name cannot be resolved",
                                    .where = endpoint.host,
                                    .expected = "a name or IPv4 address of this machine",
                                    .got = ::gai_strerror(rc),
                                    .fix = "give its address, such as 127.0.0.1"});
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  ::freeaddrinfo(found);
  address.sin_port = htons(static_cast<uint16_t>(endpoint.port));
  return address;
}

FileDescriptor bind_to(const sockaddr_in& address, bool reuse) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (reuse) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto* plain = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(socket.get(), plain, sizeof(address)) != 0) return FileDescriptor();
  return socket;
}

// A port whose last connections are in TIME_WAIT refuses a plain bind() but is free; a socket
// that listens there refuses both.
FileDescriptor reserve(const sockaddr_in& address) {
  FileDescriptor socket = bind_to(address, false);
  if (socket || errno != EADDRINUSE) return socket;
  {
    const FileDescriptor probe = bind_to(address, true);
    if (!probe || ::listen(probe.get(), 1) != 0) return FileDescriptor();
  }
  return bind_to(address, true);
}

std::optional<std::string> socket_inode_of_listener(int port) {
  std::ifstream table("/proc/net/tcp");
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

[[noreturn]] void refuse(const HostPort& endpoint, int error) {
  const std::string where = str_cat(endpoint.host, ":", endpoint.port);
  if (error == EADDRNOTAVAIL) {
    throw_error(ErrorCode::kInput, {.what = "the endpoint is not of this machine",
                                    .where = where,
                                    .expected = "an address of a local interface",
                                    .got = std::strerror(error),
                                    .fix = "launch_ps starts processes here only; use 127.0.0.1"});
  }
  const std::string holder = error == EADDRINUSE ? holder_of(endpoint.port) : "";
  throw_error(ErrorCode::kAddressInUse,
              {.what = "the port cannot be used",
               .where = where,
               .expected = "a free port",
               .got = holder.empty() ? std::strerror(error) : "it is held by " + holder,
               .fix = "leave out --start_port and --endpoints to get free ports, choose others, or "
                      "end the process that holds this one"});
}

std::pair<int, int> room_below_ephemeral_ports() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 0;
  file >> low;
  return {kLowestPort, low};
}

}  // namespace

HostPort parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && colon > 0) {
    const auto port = parse_int(std::string_view(text).substr(colon + 1));
    if (port && *port >= 1 && *port <= 65535) {
      return {.host = text.substr(0, colon), .port = static_cast<int>(*port)};
    }
  }
  throw_error(ErrorCode::kInvalidArgument, {.what = "not an endpoint",
                                            .where = "--endpoints",
                                            .expected = "host:port with a port of 1 to 65535",
                                            .got = "'" + text + "'",
                                            .fix = "write for example 127.0.0.1:6170"});
}

PortReservation PortReservation::any(const std::string& host, int count) {
  const auto [low, high] = room_below_ephemeral_ports();
  const bool choose = high - low >= kMinimumRoom;
  std::random_device random;
  std::uniform_int_distribution<int> pick(low, choose ? high - 1 : low);
  PortReservation held;
  for (int attempts = 0; static_cast<int>(held.sockets_.size()) < count; ++attempts) {
    const int port = choose && attempts < 200 * count ? pick(random) : 0;
    FileDescriptor socket = bind_to(resolve({.host = host, .port = port}), false);
    if (!socket && port == 0) refuse({.host = host, .port = port}, errno);
    if (!socket) continue;
    sockaddr_in actual{};
    socklen_t size = sizeof(actual);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&actual), &size);
    held.endpoints_.push_back(str_cat(host, ":", ntohs(actual.sin_port)));
    held.sockets_.push_back(std::move(socket));
  }
  return held;
}

PortReservation PortReservation::of(const std::vector<std::string>& endpoints) {
  PortReservation held;
  std::set<std::string> seen;
  for (const std::string& text : endpoints) {
    const HostPort endpoint = parse_endpoint(text);
    if (!seen.insert(text).second) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "an endpoint is given twice",
                                                .where = "--endpoints",
                                                .expected = "one endpoint for each server",
                                                .got = text,
                                                .fix = "give each server a port of its own"});
    }
    FileDescriptor socket = reserve(resolve(endpoint));
    if (!socket) refuse(endpoint, errno);
    held.endpoints_.push_back(text);
    held.sockets_.push_back(std::move(socket));
  }
  return held;
}

}  // namespace fleet::launch
