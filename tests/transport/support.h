// What the transport's tests share: hellos that fit, a server that remembers what it was sent and
// answers, and requests.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/transport/rpc_client.h"
#include "transport/rpc/server.h"
#include "transport/sim/sim_loop.h"

namespace fleet::transport::testing {

using namespace std::chrono_literals;  // NOLINT: durations of tests

inline Logger quiet() {
  return Logger(LogLevel::kOff);
}

inline Hello hello_of(PeerRole role, uint32_t index, uint32_t workers = 2, uint32_t servers = 2) {
  Hello hello;
  hello.job_id = "job";
  hello.member = MemberId{role, index};
  hello.worker_num = workers;
  hello.server_num = servers;
  hello.incarnation = 1000 + static_cast<uint64_t>(role) * 100 + index;
  hello.instruction_set = "avx2";
  hello.facts = {{"program", "0123abcd"}, {"strategy", "sync"}};
  return hello;
}

inline Secret secret() {
  return Secret::of_text("a secret for tests only", "test");
}

inline std::vector<std::byte> pattern(size_t size, uint32_t salt) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 2654435761U + salt * 40503U) >> 13);
  }
  return bytes;
}

// Keeps pushed payloads by (variable, piece), answers kGet with them, and counts everything.
class Store : public ServerHandler {
 public:
  Status admit(const Hello& peer) override {
    admitted.push_back(peer);
    return admission;
  }
  Loop* on_open(Session& session) override {
    ++opened;
    last_session = session.weak_from_this();
    return nullptr;
  }
  PayloadTarget prepare_payload(Session&, const FrameHeader& header, ConstBytes) override {
    if (header.payload_bytes > max_payload) {
      return PayloadTarget::refuse(Status(
          ErrorCode::kBadFrame,
          {.what = "too large for the store", .where = {}, .expected = {}, .got = {}, .fix = {}}));
    }
    if (discard) return PayloadTarget::discard();
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    return PayloadTarget::into(*memory, memory);
  }
  void on_frame(Session& session, const FrameHeader& header, ConstBytes control,
                MutableBytes payload) override {
    ++frames;
    headers.push_back(header);
    if (headers.size() > 10000) headers.pop_front();
    switch (header.verb) {
      case Verb::kPush:
        ++pushes;
        data[{header.variable, header.piece}].assign(payload.begin(), payload.end());
        if (!header.has(kFlagMore)) session.send(make_reply(header));
        break;
      case Verb::kGet:
        answer_get(session, header);
        break;
      case Verb::kNotify:
        last_notice.assign(control.begin(), control.end());
        break;
      case Verb::kSnapshot:
        break;  // never answered
      default:
        session.send(make_error_reply(
            header, Status(ErrorCode::kNotSupported, {.what = "the store cannot do that",
                                                      .where = "store",
                                                      .expected = "push or get",
                                                      .got = std::string(verb_name(header.verb)),
                                                      .fix = {}})));
    }
  }
  void on_closed(Session&, const Status& why) override {
    ++closed;
    last_end = why;
  }

  uint64_t max_payload = 1 << 26;
  bool discard = false;
  Status admission;
  std::vector<Hello> admitted;
  int opened = 0;
  int closed = 0;
  uint64_t frames = 0;
  uint64_t pushes = 0;
  Status last_end;
  std::deque<FrameHeader> headers;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::byte>> data;
  std::vector<std::byte> last_notice;
  std::weak_ptr<Session> last_session;

 private:
  // Every piece of the variable, the last without kFlagMore.
  void answer_get(Session& session, const FrameHeader& header) {
    std::vector<Message> answers;
    for (const auto& [key, bytes] : data) {
      if (key.first != header.variable) continue;
      Message reply = make_reply(header);
      reply.header.flags = kFlagMore;
      reply.header.piece = key.second;
      auto copy = std::make_shared<std::vector<std::byte>>(bytes);
      reply.payload = Payload(copy->data(), copy->size(), copy);
      answers.push_back(std::move(reply));
    }
    if (answers.empty()) answers.push_back(make_reply(header));
    answers.back().header.flags = 0;
    for (Message& answer : answers) session.send(std::move(answer), false);
    session.flush();
  }
};

inline Request push(uint32_t variable, const std::vector<std::byte>& bytes, DoneHandler done,
                    size_t piece_bytes = kPieceBytes) {
  Request request;
  const size_t pieces = bytes.empty() ? 1 : (bytes.size() + piece_bytes - 1) / piece_bytes;
  for (size_t piece = 0; piece < pieces; ++piece) {
    Message frame;
    frame.header.verb = Verb::kPush;
    frame.header.variable = variable;
    frame.header.piece = static_cast<uint32_t>(piece);
    frame.header.shard_end = 1;
    if (piece + 1 != pieces) frame.header.flags = kFlagMore;
    const size_t begin = piece * piece_bytes;
    frame.payload =
        Payload(bytes.data() + begin, std::min(piece_bytes, bytes.size() - begin), nullptr);
    request.frames.push_back(std::move(frame));
  }
  request.on_done = std::move(done);
  return request;
}

inline Request get(uint32_t variable, std::vector<std::byte>& into, DoneHandler done,
                   size_t piece_bytes = kPieceBytes) {
  Request request;
  request.frames.emplace_back();
  request.frames.back().header.verb = Verb::kGet;
  request.frames.back().header.variable = variable;
  request.reply_target = [&into, piece_bytes](const FrameHeader& header, ConstBytes) {
    const size_t begin = header.piece * piece_bytes;
    if (begin + header.payload_bytes > into.size()) return PayloadTarget::discard();
    return PayloadTarget::into(MutableBytes(into).subspan(begin, header.payload_bytes));
  };
  request.on_done = std::move(done);
  return request;
}

inline Request simple(Verb verb, DoneHandler done) {
  Request request;
  request.frames.emplace_back();
  request.frames.back().header.verb = verb;
  request.on_done = std::move(done);
  return request;
}

// Deterministic nonces for simulated runs.
inline std::function<void(MutableBytes)> seeded_random(SimWorld& world) {
  return [&world](MutableBytes bytes) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(world.random(256));
  };
}

constexpr uint16_t kServerPort = 7000;

inline ServerOptions server_options(uint32_t index = 0) {
  ServerOptions options;
  options.endpoint = Endpoint{"127.0.0.1", static_cast<uint16_t>(kServerPort + index)};
  options.hello = hello_of(PeerRole::kServer, index);
  options.secret = secret();
  return options;
}

inline ClientOptions client_options(uint32_t worker = 0, uint32_t servers = 1) {
  ClientOptions options;
  for (uint32_t i = 0; i < servers; ++i) {
    options.servers.push_back(Endpoint{"127.0.0.1", static_cast<uint16_t>(kServerPort + i)});
  }
  options.hello = hello_of(PeerRole::kWorker, worker);
  options.secret = secret();
  return options;
}

// On a port that the kernel chooses.
inline ServerOptions free_port() {
  ServerOptions options = server_options();
  options.endpoint.port = 0;
  return options;
}

inline ClientOptions to(const Server& server, uint32_t worker = 0) {
  ClientOptions options = client_options(worker);
  options.servers = {server.bound()};
  return options;
}

}  // namespace fleet::transport::testing
