// Pushes to a server that sums, against the same socket without any protocol.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/raw_stream.h"
#include "benchmarks/harness/harness.h"
#include "tests/transport/rpc_client.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"
#include "transport/rpc/server.h"

namespace fleet::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;
using transport::FrameHeader;
using transport::kPieceBytes;

constexpr size_t kLarge = size_t{64} << 20;
constexpr size_t kSmall = 4096;
constexpr int kRounds = 9;
constexpr int kLargeCalls = 5;

transport::Hello hello_of(transport::PeerRole role) {
  transport::Hello hello;
  hello.job_id = "bench_push";
  hello.member = {role, 0};
  hello.worker_num = 1;
  hello.server_num = 1;
  hello.instruction_set = transport::instruction_set();
  return hello;
}

// Without a secret nothing can protect frames, and nothing does.
transport::Secret secret_for(transport::FrameProtection protection) {
  if (protection == transport::FrameProtection::kNone) return transport::Secret::insecure();
  auto secret = transport::Secret::of_text("a secret for measurements", "benchmark");
  secret.protection = protection;
  return secret;
}

// Adds every piece to an accumulator as it comes, and answers the last one of a push.
class Summing final : public transport::ServerHandler {
 public:
  Summing() : sum_(kLarge / sizeof(float)), piece_(kPieceBytes / sizeof(float)) {}

  transport::PayloadTarget prepare_payload(transport::Session&, const FrameHeader& header,
                                           transport::ConstBytes) override {
    auto* memory = reinterpret_cast<std::byte*>(piece_.data());
    return transport::PayloadTarget::into({memory, header.payload_bytes});
  }
  void on_frame(transport::Session& session, const FrameHeader& header, transport::ConstBytes,
                transport::MutableBytes payload) override {
    float* sum = sum_.data() + header.piece * (kPieceBytes / sizeof(float));
    const size_t count = payload.size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) sum[i] += piece_[i];
    if (header.has(transport::kFlagUser0)) session.send(transport::make_reply(header));
  }
  void on_closed(transport::Session&, const Status&) override {}

 private:
  std::vector<float> sum_;
  std::vector<float> piece_;
};

// A server in a child process.
class ServerProcess {
 public:
  explicit ServerProcess(int core,
                         const transport::Secret& secret = transport::Secret::insecure()) {
    int report[2];
    if (pipe(report) != 0) throw_error(ErrorCode::kInput, {.what = "no pipe"});
    child_ = fork();
    if (child_ == 0) {
      pin_to_core(core);
      serve(report[1], secret);
      _exit(0);
    }
    close(report[1]);
    if (read(report[0], &port_, sizeof port_) != sizeof port_) port_ = 0;
    close(report[0]);
  }
  ~ServerProcess() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  uint16_t port() const { return port_; }
  double cpu_us() const { return cpu_us_of(child_); }

 private:
  static void serve(int report, const transport::Secret& secret) {
    transport::AsioLoop loop;
    transport::AsioNetwork network;
    Summing summing;
    const transport::ServerLane lane{&loop, &summing};
    transport::Server server(network, lane, lane,
                             {.endpoint = {"127.0.0.1", 0},
                              .hello = hello_of(transport::PeerRole::kServer),
                              .secret = secret});
    server.listen().throw_if_error();
    const uint16_t port = server.bound().port;
    if (write(report, &port, sizeof port) != sizeof port) return;
    loop.run();
  }

  pid_t child_ = 0;
  uint16_t port_ = 0;
};

// A worker's end: pushes one buffer again and again.
class Pusher {
 public:
  Pusher(transport::TransportChoice choice, uint16_t port, size_t bytes,
         const transport::Secret& secret = transport::Secret::insecure())
      : network_(choice),
        buffer_(bytes),
        client_(loop_, network_,
                {.servers = {{"127.0.0.1", port}},
                 .hello = hello_of(transport::PeerRole::kWorker),
                 .secret = secret}) {
    std::memset(buffer_.data(), 0, bytes);
    client_.start();
  }

  void push() {
    transport::Request request;
    for (size_t at = 0; at < buffer_.size(); at += kPieceBytes) {
      transport::Message message;
      message.header.verb = transport::Verb::kPush;
      message.header.piece = static_cast<uint32_t>(at / kPieceBytes);
      const size_t count = std::min(kPieceBytes, buffer_.size() - at);
      if (at + count == buffer_.size()) message.header.flags = transport::kFlagUser0;
      message.payload = transport::Payload(buffer_.data() + at, count, nullptr);
      request.frames.push_back(std::move(message));
    }
    request.on_done = pending_.track();
    client_.submit(0, 0, std::move(request));
    transport::testing::wait(loop_, pending_).throw_if_error();
  }

 private:
  transport::AsioLoop loop_;
  transport::AsioNetwork network_;
  Buffer buffer_;
  transport::testing::PendingRequests pending_;
  transport::testing::Client client_;
};

// Median seconds of one call.
double seconds_of(int calls, const std::function<void()>& call) {
  std::vector<double> seconds;
  call();
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return median(seconds);
}

// Against a raw reader that adds, too, with the chunk and the buffer that serve it best: no
// protocol can be faster.
Row push_large(const Rounds& rounds, transport::TransportChoice choice) {
  const ServerProcess server(-1);
  Pusher pusher(choice, server.port(), kLarge);
  RawStreamOptions options = {.unix_socket = choice == transport::TransportChoice::kUnix,
                              .message_bytes = kLarge,
                              .answer_bytes = transport::kHeaderBytes};
  if (!rounds.ours_only()) options = fastest(options);
  RawStream raw(options);
  options.sums = true;
  if (!rounds.ours_only()) options = fastest(options);
  RawStream adding(options);
  const auto rate = [](const std::function<void()>& call) {
    return static_cast<double>(kLarge) * 1e-9 / seconds_of(kLargeCalls, call);
  };
  pusher.push();
  adding.exchange();
  std::vector<double> raw_rates;
  const double used = server.cpu_us();
  const double adding_used = adding.reader_cpu_us();
  const Pairs pairs = rounds.pairs(
      kRounds, [&] { return rate([&] { pusher.push(); }); },
      [&] {
        raw_rates.push_back(rate([&] { raw.exchange(); }));
        return rate([&] { adding.exchange(); });
      });
  const double calls = static_cast<double>(pairs.ours.size()) * (kLargeCalls + 1) * 1e3;
  Row row = {.unit = "GB/s",
             .peer = "raw reader that adds",
             .kind = BenchPeer::kLimit,
             .target = 0.8,
             .note = str_cat(
                 options.chunk >> 10, options.whole_chunks ? " KiB whole" : " KiB",
                 " chunks, send buffer ", options.send_buffer >> 10,
                 " KiB; a raw stream that adds nothing: ", tools::significant(median(raw_rates)),
                 " GB/s; server's CPU a push ",
                 tools::significant((server.cpu_us() - used) / calls), " ms, the raw reader's ",
                 tools::significant((adding.reader_cpu_us() - adding_used) / calls),
                 " ms; the transport alone: client, frames, links and server loop, with a handler "
                 "that adds; whole parameter servers: sync_2x2_8mb")};
  row.take(pairs);
  // Of the best round: where the host puts the processors changes it by a third, while a peer that
  // is set up wrongly is slow in all of them.
  if (!rounds.ours_only()) {
    row.others = {{"raw stream", *std::max_element(raw_rates.begin(), raw_rates.end())}};
  }
  return row;
}

// What protection costs: against the same push over the same kind of link without any.
Row push_protected(const Rounds& rounds, transport::FrameProtection protection) {
  constexpr auto kTcp = transport::TransportChoice::kTcp;
  const transport::Secret secret = secret_for(protection);
  const ServerProcess server(-1, secret);
  const ServerProcess plain_server(-1);
  Pusher pusher(kTcp, server.port(), kLarge, secret);
  Pusher plain(kTcp, plain_server.port(), kLarge);
  const auto rate = [](Pusher& which) {
    return static_cast<double>(kLarge) * 1e-9 / seconds_of(kLargeCalls, [&] { which.push(); });
  };
  pusher.push();
  plain.push();
  Row row = {.unit = "GB/s", .peer = "the same without protection", .kind = BenchPeer::kReference};
  row.take(rounds.pairs(
      kRounds, [&] { return rate(pusher); }, [&] { return rate(plain); }));
  return row;
}

Row push_small(const Rounds& rounds) {
  constexpr int kCore = 0;
  constexpr int kCalls = 4000;
  const ServerProcess server(kCore);
  RawStream raw({.message_bytes = kSmall, .answer_bytes = transport::kHeaderBytes, .core = kCore});
  pin_to_core(kCore);
  Pusher pusher(transport::TransportChoice::kUnix, server.port(), kSmall);
  Row row = {.unit = "us",
             .peer = "raw ping-pong, Unix",
             .better = Better::kLower,
             .kind = BenchPeer::kLimit,
             .target = 0.77};
  row.take(rounds.pairs(
      kRounds, [&] { return 1e6 * seconds_of(kCalls, [&] { pusher.push(); }); },
      [&] { return 1e6 * seconds_of(kCalls, [&] { raw.exchange(); }); }));
  pin_to_core(-1);
  return row;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  using fleet::transport::TransportChoice;
  return bench_main(
      argc, argv, "Pushes to a server that sums, against raw sockets.",
      {{"push_64m_unix",
        [](const Rounds& rounds) { return push_large(rounds, TransportChoice::kUnix); }},
       {"push_64m_tcp",
        [](const Rounds& rounds) { return push_large(rounds, TransportChoice::kTcp); }},
       {"push_64m_tcp_integrity",
        [](const Rounds& rounds) {
          return push_protected(rounds, fleet::transport::FrameProtection::kIntegrity);
        }},
       {"push_64m_tcp_encryption",
        [](const Rounds& rounds) {
          return push_protected(rounds, fleet::transport::FrameProtection::kEncryption);
        }},
       {"push_4k_one_core", push_small}});
}
