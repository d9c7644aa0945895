#include "base/net/port_reservation.h"

#include <fstream>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>

#include "base/error.h"

namespace fleet {
namespace {

using ::testing::HasSubstr;

// Listens on a port of the loopback address of IPv6, which a machine need not have.
class Ipv6Listener {
 public:
  Ipv6Listener() : socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    ready_ = socket_ && ::bind(socket_.get(), plain, size) == 0 &&
             ::listen(socket_.get(), 1) == 0 && ::getsockname(socket_.get(), plain, &size) == 0;
    port_ = ntohs(address.sin6_port);
  }
  bool ready() const { return ready_; }
  uint16_t port() const { return port_; }

 private:
  FileDescriptor socket_;
  bool ready_ = false;
  uint16_t port_ = 0;
};

// Bound to a port of 127.0.0.1; empty where that cannot be.
FileDescriptor bound_to(uint16_t port, bool reuse) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const int rc = ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  return rc == 0 ? std::move(socket) : FileDescriptor();
}

TEST(PortReservation, PortsDifferAndAreHeld) {
  PortReservation held = PortReservation::any("127.0.0.1", 50);
  std::set<uint16_t> ports;
  for (const Endpoint& endpoint : held.endpoints()) ports.insert(endpoint.port);
  EXPECT_EQ(ports.size(), 50U);
  EXPECT_FALSE(ports.contains(0));
  EXPECT_THROW(PortReservation::of({held.endpoints()[3]}, "here"), ResourceError);
  EXPECT_FALSE(bound_to(held.endpoints()[3].port, true));
}

TEST(PortReservation, APortThatIsLentIsItsServersAlone) {
  PortReservation held = PortReservation::any("127.0.0.1", 1);
  const uint16_t port = held.endpoints()[0].port;
  held.lend(0);
  for (int start = 0; start < 2; ++start) {
    EXPECT_FALSE(bound_to(port, false)) << "as another reservation would";
    const FileDescriptor server = bound_to(port, true);
    ASSERT_TRUE(server);
    EXPECT_EQ(::listen(server.get(), 1), 0);
    EXPECT_THROW(PortReservation::of({held.endpoints()[0]}, "here"), ResourceError);
  }
  EXPECT_NO_THROW(PortReservation::of({held.endpoints()[0]}, "here")) << "asked for by name";
}

TEST(PortReservation, NoOutgoingConnectionIsGivenSuchAPort) {
  int first = 0;
  int last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first < 20000) GTEST_SKIP() << "no room below the ephemeral ports of this machine";
  const PortReservation held = PortReservation::any("127.0.0.1", 20);
  for (const Endpoint& endpoint : held.endpoints()) EXPECT_LT(endpoint.port, first);
}

TEST(PortReservation, OfAllAddressesExcludesEachOfThem) {
  const PortReservation all = PortReservation::any("0.0.0.0", 1);
  const Endpoint loopback{"127.0.0.1", all.endpoints()[0].port};
  EXPECT_THROW(PortReservation::of({loopback}, "here"), ResourceError);
}

TEST(PortReservation, EndpointsOfOtherMachinesAndTwiceTheSameAreRefused) {
  const uint16_t port = PortReservation::any("127.0.0.1", 1).endpoints()[0].port;
  EXPECT_THROW(PortReservation::of({{"192.0.2.1", port}}, "here"), ResourceError);
  EXPECT_THROW(PortReservation::any("no-such-host.invalid", 1), ResourceError);
  try {
    PortReservation::of({{"127.0.0.1", port}, {"127.0.0.1", port}}, "--endpoints");
    FAIL() << "it was taken twice";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.text().where, "--endpoints");
  }
}

TEST(PortReservation, ReservesAddressesOfIpv6AndNamesWhoHoldsThem) {
  const Ipv6Listener listener;
  if (!listener.ready()) GTEST_SKIP() << "this machine has no ::1";
  const PortReservation held = PortReservation::any("::1", 2);
  EXPECT_EQ(held.endpoints()[0].host, "::1");
  EXPECT_NE(held.endpoints()[0].port, held.endpoints()[1].port);
  EXPECT_THROW(PortReservation::of({held.endpoints()[0]}, "here"), ResourceError);
  try {
    PortReservation::of({{"::1", listener.port()}}, "here");
    FAIL() << "somebody listens there";
  } catch (const ResourceError& error) {
    EXPECT_EQ(error.text().where, Endpoint({"::1", listener.port()}).to_string());
    EXPECT_THAT(error.text().got, HasSubstr(std::to_string(::getpid())));
  }
}

}  // namespace
}  // namespace fleet
