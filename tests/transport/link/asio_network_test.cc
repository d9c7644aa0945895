// Links and listeners of real sockets: which route is taken, ports, buffers.
#include "transport/link/asio_network.h"

#include <functional>
#include <gtest/gtest.h>
#include <utility>

#include "base/strings.h"
#include "tests/testing/ports.h"
#include "tests/transport/support.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

constexpr Duration kLimit = 20s;

// A small gradient arrives.
void expect_push(AsioLoop& loop, Client& client) {
  client.start();
  PendingRequests pending;
  const auto bytes = pattern(10, 1);
  client.submit(0, 0, push(1, bytes, pending.track()));
  ASSERT_TRUE(loop.run_until([&] { return pending.done(); }, loop.now() + kLimit));
  EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
}

// A server of another job, for the Unix address of this endpoint.
ServerOptions of_another_job(const Endpoint& endpoint) {
  ServerOptions options = server_options();
  options.endpoint = endpoint;
  options.hello.job_id = "another job";
  return options;
}

TEST(AsioNetwork, LocalHostsAreReachedOverUnixFirst) {
  AsioNetwork network;
  EXPECT_EQ(network.routes(Endpoint{"127.0.0.1", 1}).at(0).kind, LinkKind::kUnix);
  EXPECT_EQ(network.routes(Endpoint{"127.0.0.1", 1}).size(), 2U);
  EXPECT_EQ(network.routes(Endpoint{"192.0.2.1", 1}).at(0).kind, LinkKind::kTcp);
  EXPECT_EQ(network.routes(Endpoint{"192.0.2.1", 1}).size(), 1U);
}

TEST(AsioNetwork, APortIsListenedOnByOneOnly) {
  AsioLoop loop;
  AsioNetwork network;
  Store store;
  Server first(network, {&loop, &store}, {&loop, &store}, free_port(), quiet());
  ASSERT_TRUE(first.listen().ok());
  ServerOptions options = server_options();
  options.endpoint = first.bound();
  Server second(network, {&loop, &store}, {&loop, &store}, options, quiet());
  const Status status = second.listen();
  EXPECT_EQ(status.code(), ErrorCode::kAddressInUse);
  EXPECT_NE(status.text().where.find(str_cat(first.bound().port)), std::string::npos);
}

TEST(AsioNetwork, AnAddressOfAnotherMachineStillListens) {
  AsioLoop loop;
  AsioNetwork network(TransportChoice::kTcp);
  Store store;
  ServerOptions options = free_port();
  options.endpoint.host = "192.0.2.7";  // as in a container behind address translation
  Server server(network, {&loop, &store}, {&loop, &store}, options, quiet());
  EXPECT_TRUE(server.listen().ok());
  EXPECT_NE(server.bound().port, 0);
}

// What a connection takes at once when nobody reads.
size_t bytes_taken(size_t send_buffer) {
  AsioLoop loop;
  AsioNetwork network(TransportChoice::kTcp);
  std::unique_ptr<Link> reader;
  std::unique_ptr<Link> writer;
  const auto listener =
      network.listen(loop, {LinkKind::kTcp, {"127.0.0.1", 0}},
                     [&](std::unique_ptr<Link> link) { reader = std::move(link); });
  const auto connector = network.connect(
      loop, {LinkKind::kTcp, listener.value()->bound()},
      [&](Result<std::unique_ptr<Link>> link) { writer = std::move(link.value()); });
  loop.run_until([&] { return reader && writer; }, loop.now() + kLimit);
  if (send_buffer > 0) writer->set_send_buffer(send_buffer);
  const std::vector<std::byte> bytes(size_t{16} << 20);
  size_t taken = 0;
  for (const TimePoint end = loop.now() + 100ms; loop.now() < end;) {
    const ConstBytes rest(bytes.data() + taken, bytes.size() - taken);
    taken += writer->write_some({&rest, 1}).bytes;
  }
  return taken;
}

TEST(AsioNetwork, ASendBufferBoundsWhatIsUnderWay) {
  const size_t usual = bytes_taken(0);
  const size_t bounded = bytes_taken(131072);
  EXPECT_LT(2 * bounded, usual);
  EXPECT_GT(bounded, 65536U);
}

// Calls `before_tcp` between the first attempt over Unix and the one over TCP.
class BetweenRoutes final : public Network {
 public:
  explicit BetweenRoutes(std::function<void()> before_tcp) : before_tcp_(std::move(before_tcp)) {}
  Result<std::unique_ptr<Listener>> listen(Loop& loop, const Address& address,
                                           AcceptHandler on_accept) override {
    return network_.listen(loop, address, std::move(on_accept));
  }
  std::unique_ptr<Connector> connect(Loop& loop, const Address& address,
                                     ConnectHandler on_done) override {
    if (address.kind == LinkKind::kTcp && before_tcp_) std::exchange(before_tcp_, nullptr)();
    return network_.connect(loop, address, std::move(on_done));
  }
  std::vector<Address> routes(const Endpoint& endpoint) const override {
    return network_.routes(endpoint);
  }

 private:
  AsioNetwork network_;
  std::function<void()> before_tcp_;
};

// How the last frame came.
struct NameOfPeer : Store {
  void on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                MutableBytes payload) override {
    peer = session.describe();
    Store::on_frame(session, header, control, payload);
  }
  std::string peer;
};

TEST(AsioNetwork, AServerThatComesBetweenTwoRoutesIsReachedByTheFirst) {
  AsioLoop loop;
  AsioNetwork network;
  NameOfPeer store;
  const fleet::testing::HeldPort port;
  ServerOptions options = server_options();
  options.endpoint.port = port.port();
  Server server(network, {&loop, &store}, {&loop, &store}, options, quiet());
  BetweenRoutes late([&] { server.listen().throw_if_error(); });
  ClientOptions to_port = client_options(0);
  to_port.servers = {options.endpoint};
  Client client(loop, late, to_port, quiet());
  expect_push(loop, client);
  EXPECT_NE(store.peer.find("(unix"), std::string::npos) << store.peer;
}

// What comes there may be another job's: one look is enough.
TEST(AsioNetwork, AForeignUnixSocketThatComesBetweenTwoRoutesIsPassedBy) {
  AsioLoop loop;
  AsioNetwork tcp(TransportChoice::kTcp);
  AsioNetwork unix_only(TransportChoice::kUnix);
  NameOfPeer store;
  Store foreign;
  Server server(tcp, {&loop, &store}, {&loop, &store}, free_port(), quiet());
  ASSERT_TRUE(server.listen().ok());
  Server other(unix_only, {&loop, &foreign}, {&loop, &foreign}, of_another_job(server.bound()),
               quiet());
  BetweenRoutes late([&] { other.listen().throw_if_error(); });
  Client client(loop, late, to(server), quiet());
  expect_push(loop, client);
  EXPECT_NE(store.peer.find("(tcp"), std::string::npos) << store.peer;
  EXPECT_EQ(other.refused(), 1U);
}

// Somebody else holds the Unix address of the port: the client goes on to TCP.
TEST(AsioNetwork, AForeignUnixSocketIsPassedBy) {
  AsioLoop loop;
  AsioNetwork tcp(TransportChoice::kTcp);
  AsioNetwork both;
  Store store;
  Store foreign;
  Server server(tcp, {&loop, &store}, {&loop, &store}, free_port(), quiet());
  ASSERT_TRUE(server.listen().ok());
  AsioNetwork unix_only(TransportChoice::kUnix);
  Server other(unix_only, {&loop, &foreign}, {&loop, &foreign}, of_another_job(server.bound()),
               quiet());
  ASSERT_TRUE(other.listen().ok());
  Client client(loop, both, to(server), quiet());
  expect_push(loop, client);
  EXPECT_EQ(store.pushes, 1U);
  EXPECT_EQ(other.refused(), 1U);
}

}  // namespace
}  // namespace fleet::transport
