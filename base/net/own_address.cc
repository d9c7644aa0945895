#include "base/net/own_address.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <iterator>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

#include "base/error.h"
#include "base/process/file_descriptor.h"
#include "base/strings.h"

namespace fleet {
namespace {

[[noreturn]] void fail(const Endpoint& endpoint, std::string got) {
  throw_error(ErrorCode::kPeerLost, {.what = "this machine has no way to a process of the job",
                                     .where = endpoint.to_string(),
                                     .expected = "a host that this machine knows and a route to it",
                                     .got = std::move(got),
                                     .fix = "correct the address, or the network of this machine"});
}

struct InterfaceAddress {
  std::string interface;
  std::string address;
  int family = AF_INET;
  bool loopback = false;
};

std::string text_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int code = getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text.data() : std::string();
}

// Of interfaces that are up. Link-local addresses of IPv6 mean nothing elsewhere.
std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::string address = text_of(entry->ifa_addr, size);
    if (address.empty() || address.starts_with("fe80:")) continue;
    addresses.push_back(
        {entry->ifa_name, std::move(address), family, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return addresses;
}

bool is_bridge(const std::string& interface) {
  static constexpr std::string_view kPrefixes[] = {"docker", "br-",     "virbr", "veth",  "cni",
                                                   "cali",   "flannel", "lxc",   "podman"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

std::string chosen_address(const std::string& interfaces, int family) {
  const auto addresses = interface_addresses();
  for (const auto& name : split(interfaces, ',')) {
    const InterfaceAddress* found = nullptr;
    for (const InterfaceAddress& each : addresses) {
      if (each.interface != trim(name)) continue;
      if (found == nullptr || (found->family != family && each.family == family)) found = &each;
    }
    if (found != nullptr) return found->address;
  }
  std::vector<std::string> there;
  there.reserve(addresses.size());
  for (const InterfaceAddress& each : addresses) {
    there.push_back(str_cat(each.interface, " (", each.address, ")"));
  }
  throw_error(ErrorCode::kEnvironment,
              {.what = "the chosen network interface is not there, or not up",
               .where = "FLEET_SOCKET_IFNAME",
               .expected = str_cat("one of ", join(there, ", ")),
               .got = interfaces,
               .fix = "name an interface of this machine, or several separated by commas"});
}

// Empty when there is no default route.
std::string routed_address() {
  try {
    return own_address_towards({"198.51.100.1", 9});  // of nobody's network (RFC 5737)
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::string own_address_towards(const Endpoint& endpoint, const std::string& interfaces) {
  if (!interfaces.empty()) {
    const bool ipv6 = endpoint.host.find(':') != std::string::npos;
    return chosen_address(interfaces, ipv6 ? AF_INET6 : AF_INET);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = str_cat(endpoint.port == 0 ? 9 : endpoint.port);
  const int code = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  if (code != 0) fail(endpoint, gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    const FileDescriptor socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (socket.get() >= 0 && ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0) {
      std::string text = text_of(reinterpret_cast<const sockaddr*>(&own), size);
      if (!text.empty()) return text;
    }
    why = std::strerror(errno);
  }
  fail(endpoint, why);
}

std::string machine_address(const std::string& interfaces) {
  if (!interfaces.empty()) return chosen_address(interfaces, AF_INET);
  if (std::string routed = routed_address(); !routed.empty()) return routed;
  for (const InterfaceAddress& each : interface_addresses()) {
    if (each.family == AF_INET && !each.loopback && !is_bridge(each.interface)) return each.address;
  }
  return "127.0.0.1";
}

}  // namespace fleet
