#include "transport/session/frame.h"

#include <algorithm>
#include <cstring>

#include "base/archive.h"
#include "base/hash.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

// Where each field lies; docs/wire_protocol.md has the same table.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kVerbAt = 6;
constexpr size_t kFlagsAt = 8;
constexpr size_t kControlBytesAt = 12;
constexpr size_t kRequestAt = 16;
constexpr size_t kStepAt = 24;
constexpr size_t kPayloadBytesAt = 32;
constexpr size_t kEpochAt = 40;
constexpr size_t kShardBeginAt = 44;
constexpr size_t kShardEndAt = 48;
constexpr size_t kVariableAt = 52;
constexpr size_t kPieceAt = 56;
constexpr size_t kCrcAt = 60;
static_assert(kCrcAt + 4 == kHeaderBytes);

constexpr size_t kMaxStatusText = 4096;

template <class T>
void put(EncodedHeader& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
T get(std::span<const std::byte, kHeaderBytes> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

bool known_verb(uint16_t verb) {
  return verb >= static_cast<uint16_t>(Verb::kFirstApplicationVerb) ||
         !verb_name(static_cast<Verb>(verb)).empty();
}

Status bad(std::string what, std::string expected, std::string got) {
  return Status(ErrorCode::kBadFrame, {.what = std::move(what),
                                       .where = "frame header",
                                       .expected = std::move(expected),
                                       .got = std::move(got),
                                       .fix = {}});
}

std::string hex(uint32_t value) {
  std::ostringstream out;
  out << "0x" << std::hex << value;
  return std::move(out).str();
}

struct WireStatus {
  uint16_t code = 0;
  std::string what, where, expected, got, fix;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(code, what, where, expected, got, fix);
  }
};

// A peer's text is printed to the user's terminal: bounded, and without control characters.
std::string clean(std::string text) {
  if (text.size() > kMaxStatusText) text.resize(kMaxStatusText);
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace

std::string_view verb_name(Verb verb) {
  switch (verb) {
    case Verb::kAuthChallenge:
      return "auth-challenge";
    case Verb::kAuthResponse:
      return "auth-response";
    case Verb::kAuthConfirm:
      return "auth-confirm";
    case Verb::kHello:
      return "hello";
    case Verb::kWelcome:
      return "welcome";
    case Verb::kRefuse:
      return "refuse";
    case Verb::kReply:
      return "reply";
    case Verb::kErrorReply:
      return "error-reply";
    case Verb::kPing:
      return "ping";
    case Verb::kPong:
      return "pong";
    case Verb::kGoodbye:
      return "goodbye";
    case Verb::kHeartbeat:
      return "heartbeat";
    case Verb::kReduce:
      return "reduce";
    case Verb::kComplete:
      return "complete";
    case Verb::kAbort:
      return "abort";
    case Verb::kSave:
      return "save";
    case Verb::kPush:
      return "push";
    case Verb::kGet:
      return "get";
    case Verb::kCredit:
      return "credit";
    case Verb::kSendBarrier:
      return "send-barrier";
    case Verb::kNotify:
      return "notify";
    case Verb::kSnapshot:
      return "snapshot";
    case Verb::kInit:
      return "init";
    case Verb::kCollectiveJoin:
      return "collective-join";
    case Verb::kCollectiveMessage:
      return "collective-message";
    case Verb::kCollectiveOffer:
      return "collective-offer";
    case Verb::kCollectiveFailed:
      return "collective-failed";
    case Verb::kFirstApplicationVerb:
      break;
  }
  return verb >= Verb::kFirstApplicationVerb ? "application" : "";
}

EncodedHeader encode_header(const FrameHeader& header) {
  EncodedHeader bytes;
  put(bytes, kMagicAt, kFrameMagic);
  put(bytes, kVersionAt, header.version);
  put(bytes, kVerbAt, static_cast<uint16_t>(header.verb));
  put(bytes, kFlagsAt, header.flags);
  put(bytes, kControlBytesAt, header.control_bytes);
  put(bytes, kRequestAt, header.request_id);
  put(bytes, kStepAt, header.step);
  put(bytes, kPayloadBytesAt, header.payload_bytes);
  put(bytes, kEpochAt, header.epoch);
  put(bytes, kShardBeginAt, header.shard_begin);
  put(bytes, kShardEndAt, header.shard_end);
  put(bytes, kVariableAt, header.variable);
  put(bytes, kPieceAt, header.piece);
  put(bytes, kCrcAt, crc32c(ConstBytes(bytes).first(kCrcAt)));
  return bytes;
}

Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  const auto magic = get<uint32_t>(bytes, kMagicAt);
  if (magic != kFrameMagic) return bad("not a Fleet frame", hex(kFrameMagic), hex(magic));
  const auto crc = crc32c(ConstBytes(bytes).first(kCrcAt));
  if (crc != get<uint32_t>(bytes, kCrcAt)) {
    return bad("the header's checksum is wrong", hex(crc), hex(get<uint32_t>(bytes, kCrcAt)));
  }
  FrameHeader header;
  header.version = get<uint16_t>(bytes, kVersionAt);
  if (header.version != kProtocolVersion) {
    return Status(ErrorCode::kHandshakeRefused,
                  {.what = "two processes speak different versions of the protocol",
                   .where = "frame header",
                   .expected = str_cat("protocol version ", kProtocolVersion, " (this process)"),
                   .got = str_cat("protocol version ", header.version, " (the peer)"),
                   .fix = "start every process of the job from the same build"});
  }
  const auto verb = get<uint16_t>(bytes, kVerbAt);
  if (!known_verb(verb)) return bad("unknown verb", "a verb of this version", str_cat(verb));
  header.verb = static_cast<Verb>(verb);
  header.flags = get<uint32_t>(bytes, kFlagsAt);
  if ((header.flags & ~kKnownFlags) != 0) {
    return bad("unknown flags", hex(kKnownFlags), hex(header.flags));
  }
  header.control_bytes = get<uint32_t>(bytes, kControlBytesAt);
  header.request_id = get<uint64_t>(bytes, kRequestAt);
  header.step = get<uint64_t>(bytes, kStepAt);
  header.payload_bytes = get<uint64_t>(bytes, kPayloadBytesAt);
  header.epoch = get<uint32_t>(bytes, kEpochAt);
  header.shard_begin = get<uint32_t>(bytes, kShardBeginAt);
  header.shard_end = get<uint32_t>(bytes, kShardEndAt);
  header.variable = get<uint32_t>(bytes, kVariableAt);
  header.piece = get<uint32_t>(bytes, kPieceAt);
  if (header.shard_begin > header.shard_end) {
    return bad("a shard range ends before it begins", str_cat("at least ", header.shard_begin),
               str_cat(header.shard_end));
  }
  return header;
}

std::vector<std::byte> encode_status(const Status& status) {
  const ErrorText& text = status.text();
  const auto cut = [](const std::string& part) { return part.substr(0, kMaxStatusText); };
  return encode(WireStatus{static_cast<uint16_t>(status.code()), cut(text.what), cut(text.where),
                           cut(text.expected), cut(text.got), cut(text.fix)});
}

Status decode_status(ConstBytes control) {
  auto wire = decode<WireStatus>(control, "status of a peer");
  if (!wire.ok()) return wire.status();
  WireStatus& said = wire.value();
  auto code = static_cast<ErrorCode>(said.code);
  if (said.code == 0 || said.code >= error_table().size()) code = ErrorCode::kInternal;
  return Status(code, {.what = clean(std::move(said.what)),
                       .where = clean(std::move(said.where)),
                       .expected = clean(std::move(said.expected)),
                       .got = clean(std::move(said.got)),
                       .fix = clean(std::move(said.fix))});
}

Message make_reply(const FrameHeader& request) {
  Message reply;
  reply.header = request;
  reply.header.verb = Verb::kReply;
  reply.header.flags = 0;
  return reply;
}

Message make_error_reply(const FrameHeader& request, const Status& status) {
  Message reply = make_reply(request);
  reply.header.verb = Verb::kErrorReply;
  reply.control = encode_status(status);
  return reply;
}

}  // namespace fleet::transport
