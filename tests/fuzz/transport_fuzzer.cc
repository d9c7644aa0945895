// Bytes of a hostile peer, given to an accepting session and to every decoder of control parts.
// The first byte chooses: raw bytes before the handshake, raw bytes after it, or frames whose
// headers are valid and whose fields come from the input.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/archive.h"
#include "tests/transport/support.h"
#include "transport/coordinator/coordinator.h"
#include "transport/coordinator/membership.h"
#include "transport/session/session.h"
#include "transport/sim/sim_loop.h"

namespace fleet::transport {
namespace {

using testing::hello_of;
using testing::Store;

// Gives its bytes to whoever reads, then the end; swallows what is written.
class ScriptedLink final : public Link {
 public:
  ScriptedLink(Loop& loop, std::vector<std::byte> script)
      : loop_(loop), script_(std::move(script)) {}

  IoResult read_some(std::span<const MutableBytes> parts) override {
    size_t moved = 0;
    for (const MutableBytes part : parts) {
      const size_t take = std::min(part.size(), script_.size() - at_);
      if (take != 0) std::memcpy(part.data(), script_.data() + at_, take);
      at_ += take;
      moved += take;
    }
    if (moved == 0) return {IoState::kClosed, 0};
    return {IoState::kOk, moved};
  }
  IoResult write_some(std::span<const ConstBytes> parts) override {
    size_t moved = 0;
    for (const ConstBytes part : parts) moved += part.size();
    return {IoState::kOk, moved};
  }
  void wait_readable(Loop::Handler handler) override { loop_.post(std::move(handler)); }
  void wait_writable(Loop::Handler handler) override { loop_.post(std::move(handler)); }
  void close() override {}
  std::unique_ptr<Link> rebind(Loop&) override { return nullptr; }
  LinkKind kind() const override { return LinkKind::kMemory; }
  std::string peer_name() const override { return "script"; }
  std::optional<PeerProcess> peer_process() const override { return std::nullopt; }
  bool same_machine() const override { return true; }

 private:
  Loop& loop_;
  std::vector<std::byte> script_;
  size_t at_ = 0;
};

void append(std::vector<std::byte>& script, FrameHeader header, ConstBytes control,
            ConstBytes payload = {}) {
  header.control_bytes = static_cast<uint32_t>(control.size());
  header.payload_bytes = payload.size();
  const EncodedHeader bytes = encode_header(header);
  script.insert(script.end(), bytes.begin(), bytes.end());
  script.insert(script.end(), control.begin(), control.end());
  script.insert(script.end(), payload.begin(), payload.end());
}

std::vector<std::byte> handshake(LaneKind lane) {
  std::vector<std::byte> script;
  FrameHeader header;
  header.verb = Verb::kAuthResponse;
  std::vector<std::byte> response(1 + sizeof(Nonce) + sizeof(Proof));
  response[0] = static_cast<std::byte>(AuthMode::kInsecure);
  append(script, header, response);
  header.verb = Verb::kHello;
  Hello hello = hello_of(PeerRole::kWorker, 0);
  hello.lane = lane;
  append(script, header, encode(hello));
  return script;
}

// Frames cut from the input: two lengths, the fields of a header, then the parts.
void append_frames(std::vector<std::byte>& script, ConstBytes input) {
  struct Fields {
    uint16_t control_bytes;
    uint16_t payload_bytes;
    uint16_t verb;
    uint8_t flags;
    uint8_t request;
    uint8_t variable;
    uint8_t piece;
  };
  while (input.size() >= sizeof(Fields)) {
    Fields fields;
    std::memcpy(&fields, input.data(), sizeof fields);
    input = input.subspan(sizeof fields);
    FrameHeader header;
    header.verb = static_cast<Verb>(fields.verb);
    header.flags = fields.flags & kKnownFlags;
    header.request_id = fields.request;
    header.variable = fields.variable;
    header.piece = fields.piece;
    const auto control = input.first(std::min<size_t>(fields.control_bytes, input.size()));
    input = input.subspan(control.size());
    const auto payload = input.first(std::min<size_t>(fields.payload_bytes, input.size()));
    input = input.subspan(payload.size());
    append(script, header, control, payload);
  }
}

void run_session(std::vector<std::byte> script, bool coordinate) {
  SimWorld world(1);
  SimLoop& loop = world.add_loop("server");
  Store store;
  store.max_payload = 1 << 16;
  CoordinatorOptions options;
  options.worker_num = 2;
  Coordinator coordinator(loop, options, Logger(LogLevel::kOff), &store);
  SessionOptions session_options;
  session_options.side = Side::kAccepting;
  session_options.handshake.hello = hello_of(PeerRole::kServer, 0);
  session_options.handshake.secret = Secret::insecure();
  SessionHandler& handler = coordinate ? static_cast<SessionHandler&>(coordinator) : store;
  auto session = std::make_shared<Session>(
      loop, std::make_unique<ScriptedLink>(loop, std::move(script)), handler, session_options);
  session->start();
  world.run_for(std::chrono::minutes(1));
  session->close();
}

void decode_all(ConstBytes input) {
  (void)decode_status(input);
  (void)decode<Hello>(input, "fuzz");
  (void)decode<HeartbeatNote>(input, "fuzz");
  (void)decode<ReduceCall>(input, "fuzz");
  (void)decode<ReduceValues>(input, "fuzz");
  (void)decode<Verdict>(input, "fuzz");
}

void run_input(ConstBytes input) {
  if (input.empty()) return;
  const auto choice = std::to_integer<unsigned>(input[0]);
  input = input.subspan(1);
  decode_all(input);
  const bool control = (choice & 4U) != 0;
  std::vector<std::byte> script;
  if ((choice & 3U) != 0) script = handshake(control ? LaneKind::kControl : LaneKind::kData);
  if ((choice & 2U) != 0) {
    append_frames(script, input);
  } else {
    script.insert(script.end(), input.begin(), input.end());
  }
  run_session(std::move(script), control);
}

}  // namespace
}  // namespace fleet::transport

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fleet::transport::run_input(std::as_bytes(std::span(data, size)));
  return 0;
}
