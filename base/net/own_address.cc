#include "base/net/own_address.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>

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

}  // namespace

std::string own_address_towards(const Endpoint& endpoint) {
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
    std::array<char, NI_MAXHOST> text{};
    if (socket.get() >= 0 && ::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return text.data();
    }
    why = std::strerror(errno);
  }
  fail(endpoint, why);
}

}  // namespace fleet
