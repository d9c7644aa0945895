// Clients that reach their server over real sockets through a proxy with faults.
#include "tests/testing/delay_proxy.h"

#include <gtest/gtest.h>

#include "tests/transport/support.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder
using fleet::testing::DelayProxy;
using fleet::testing::ProxiedNetwork;

constexpr Duration kLimit = 30s;

class ThroughProxy : public ::testing::Test {
 protected:
  void SetUp() override {
    thread_.run_there([this] {
      ServerOptions options = server_options();
      options.endpoint.port = 0;
      const ServerLane lane{&thread_.loop(), &store_};
      server_ = std::make_unique<Server>(network_, lane, lane, std::move(options), quiet());
      server_->listen().throw_if_error();
    });
  }
  void TearDown() override {
    thread_.stop_and_join();
    server_.reset();
  }
  Client make_client(Network& network, uint32_t worker) {
    ClientOptions options = client_options(worker);
    options.servers = {server_->bound()};
    return Client(loop_, network, std::move(options), quiet());
  }
  bool drive(const PendingRequests& pending) {
    return loop_.run_until([&] { return pending.done(); }, loop_.now() + kLimit);
  }

  // Bytes that stay until the test ends, as a request wants it.
  const std::vector<std::byte>& kept(size_t size, uint32_t salt) {
    return kept_.emplace_back(pattern(size, salt));
  }

  std::deque<std::vector<std::byte>> kept_;
  AsioNetwork network_{TransportChoice::kTcp};
  Store store_;
  LoopThread thread_{"server"};
  std::unique_ptr<Server> server_;
  AsioLoop loop_;
};

TEST_F(ThroughProxy, DelayedChunksArriveWholeAndInOrder) {
  DelayProxy proxy(server_->bound(), {.seed = 7, .max_delay = 2ms, .chunk_bytes = 3000});
  ProxiedNetwork network({{server_->bound().port, &proxy}});
  Client client = make_client(network, 0);
  client.start();
  const auto bytes = pattern(300'000, 5);
  std::vector<std::byte> back(bytes.size());
  PendingRequests pending;
  client.submit(0, 0, push(1, bytes, pending.track()));
  client.submit(0, 0, get(1, back, pending.track()));
  ASSERT_TRUE(drive(pending));
  EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
  EXPECT_TRUE(back == bytes);
  EXPECT_GE(proxy.bytes(), 2 * bytes.size());
}

TEST_F(ThroughProxy, ConnectionsOvertakeEachOther) {
  const DelayProxy slow(server_->bound(), {.min_delay = 20ms, .max_delay = 20ms});
  const DelayProxy fast(server_->bound(), {});
  ProxiedNetwork slowly({{server_->bound().port, &slow}});
  ProxiedNetwork quickly({{server_->bound().port, &fast}});
  Client first = make_client(slowly, 0);
  Client second = make_client(quickly, 1);
  first.start();
  second.start();
  PendingRequests pending;
  const auto bytes = pattern(100, 1);
  first.submit(0, 0, push(1, bytes, pending.track()));
  second.submit(0, 0, push(2, bytes, pending.track()));
  ASSERT_TRUE(drive(pending));
  std::vector<uint32_t> order;
  thread_.run_there([&] {
    for (const FrameHeader& header : store_.headers) order.push_back(header.variable);
  });
  EXPECT_EQ(order, (std::vector<uint32_t>{2, 1}));
}

TEST_F(ThroughProxy, RequestsOutliveConnectionsThatAreCut) {
  DelayProxy proxy(server_->bound(), {.seed = 3, .max_delay = 200us, .chunk_bytes = 2000});
  ProxiedNetwork network({{server_->bound().port, &proxy}});
  Client client = make_client(network, 0);
  client.start();
  PendingRequests first;
  client.submit(0, 0, push(0, kept(10, 0), first.track()));
  ASSERT_TRUE(drive(first));
  proxy.set_faults({.seed = 3, .max_delay = 200us, .chunk_bytes = 2000, .cut = 0.03});
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t i = 0; i < 40; ++i) sent.push_back(pattern(5000, i));
  PendingRequests pending;
  for (uint32_t i = 0; i < sent.size(); ++i) {
    client.submit(0, 0, push(100 + i, sent[i], pending.track()));
    ASSERT_TRUE(drive(pending));
  }
  EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
  EXPECT_GT(proxy.cuts(), 0U);
  EXPECT_EQ(proxy.connections(), proxy.cuts() + 1);
  thread_.run_there([&] {
    for (uint32_t i = 0; i < sent.size(); ++i) {
      const auto& stored = store_.data[{100 + i, 0}];
      EXPECT_TRUE(stored == sent[i]) << i;
    }
  });
}

TEST_F(ThroughProxy, NothingPassesWhileItIsHeld) {
  DelayProxy proxy(server_->bound(), {});
  ProxiedNetwork network({{server_->bound().port, &proxy}});
  Client held = make_client(network, 0);
  Client direct = make_client(network_, 1);
  held.start();
  direct.start();
  PendingRequests opened;
  held.submit(0, 0, push(1, kept(10, 1), opened.track()));
  ASSERT_TRUE(drive(opened));
  proxy.hold();
  PendingRequests waiting;
  PendingRequests passing;
  held.submit(0, 0, push(2, kept(10, 2), waiting.track()));
  for (uint32_t i = 0; i < 50; ++i) {
    direct.submit(0, 0, push(10 + i, kept(10, 3), passing.track()));
    ASSERT_TRUE(drive(passing));
  }
  EXPECT_FALSE(waiting.done());
  proxy.release();
  EXPECT_TRUE(drive(waiting));
}

TEST_F(ThroughProxy, CutAllIsNoticedAndConnectsAgain) {
  DelayProxy proxy(server_->bound(), {});
  ProxiedNetwork network({{server_->bound().port, &proxy}});
  Client client = make_client(network, 0);
  client.start();
  for (uint32_t i = 0; i < 3; ++i) {
    PendingRequests pending;
    client.submit(0, 0, push(i, kept(10, i), pending.track()));
    ASSERT_TRUE(drive(pending));
    EXPECT_TRUE(pending.status().ok());
    proxy.cut_all();
  }
  EXPECT_EQ(proxy.cuts(), 3U);
}

}  // namespace
}  // namespace fleet::transport
