// Frames: what travels over a link. A frame is a fixed header of 64 bytes, an optional control
// part (cereal, bounded) and an optional raw payload. docs/wire_protocol.md gives it to the byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "transport/link/bytes.h"

namespace fleet::transport {

constexpr uint32_t kFrameMagic = 0x31544c46;  // "FLT1" in memory
constexpr uint16_t kProtocolVersion = 2;
constexpr size_t kHeaderBytes = 64;
// The unit of transfer, reduction, retry and deduplication of large payloads.
constexpr size_t kPieceBytes = 256 * 1024;

// Verbs below kFirstApplicationVerb mean something to the transport or to the coordinator; the
// others are carried unread, and belong to whoever owns the lane.
enum class Verb : uint16_t {
  // The handshake; accepted on a connection's first frames only.
  kAuthChallenge = 1,
  kAuthResponse = 2,
  kAuthConfirm = 3,
  kHello = 4,
  kWelcome = 5,
  kRefuse = 6,
  // Any lane.
  kReply = 16,       // answers request_id; kFlagMore says that another frame of the answer follows
  kErrorReply = 17,  // answers request_id with a Status in the control part, and ends it
  kPing = 18,        // answered with kPong by the transport itself
  kPong = 19,
  kGoodbye = 20,  // an orderly end: what follows on the link is its closing
  // The coordinator, on control lanes.
  kHeartbeat = 32,
  kReduce = 33,  // barriers and small reductions
  kComplete = 34,
  kAbort = 35,
  kSave = 36,  // a worker asks all workers to save; told to them, with how often that was
  // Verbs for parameter servers, unread by the transport.
  kPush = 64,
  kGet = 65,
  kSendBarrier = 66,
  kCredit = 67,
  kNotify = 68,
  kSnapshot = 69,
  kInit = 70,
  // Verbs between the ranks of a collective job, unread by the transport.
  kCollectiveJoin = 80,
  kCollectiveMessage = 81,
  kCollectiveOffer = 82,
  kCollectiveFailed = 83,
  kFirstApplicationVerb = 256,
};

std::string_view verb_name(Verb verb);  // "push"; "application" from kFirstApplicationVerb up

// Flag bits. Unknown bits are refused.
constexpr uint32_t kFlagMore = 1U << 0;    // another frame of the same request or answer follows
constexpr uint32_t kFlagUser0 = 1U << 16;  // free for the owner of the verb
constexpr uint32_t kKnownFlags = kFlagMore | kFlagUser0;

// All numbers are little-endian on the wire. The ids name a unit of work: together with the
// sender's incarnation (said in the hello) they are what a server remembers to apply a retry once.
struct FrameHeader {
  uint16_t version = kProtocolVersion;
  Verb verb = Verb::kPing;
  uint32_t flags = 0;
  uint64_t request_id = 0;  // chosen by the asking side, unique on its lane; 0: no answer is wanted
  uint64_t step = 0;
  uint32_t epoch = 0;
  uint32_t shard_begin = 0;  // logical shards [begin, end) that the payload is the sum of
  uint32_t shard_end = 0;
  uint32_t variable = 0;  // the owner's numbering
  uint32_t piece = 0;     // offset / kPieceBytes from the start of the variable
  uint32_t control_bytes = 0;
  uint64_t payload_bytes = 0;

  bool has(uint32_t flag) const { return (flags & flag) != 0; }
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

using EncodedHeader = std::array<std::byte, kHeaderBytes>;

// The CRC-32C is computed here.
EncodedHeader encode_header(const FrameHeader& header);

// Checks magic, version, checksum, flags and verb; kBadFrame says what is wrong. A version that
// differs is kHandshakeRefused and names both.
Result<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes);

// Bytes to send, kept alive by `owner` until they are written (or for ever, when the caller does
// so and leaves it empty).
struct Payload {
  const std::byte* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;

  Payload() = default;
  Payload(const void* bytes, size_t count, std::shared_ptr<const void> keeper)
      : data(static_cast<const std::byte*>(bytes)), size(count), owner(std::move(keeper)) {}
  explicit Payload(const Buffer& buffer)
      : data(buffer.data()), size(buffer.size()), owner(buffer.owner()) {}
};

// A frame to send. The two lengths of the header are set from `control` and `payload` when it is
// queued. The payload is written straight from its memory, which must not change before that.
struct Message {
  FrameHeader header;
  std::vector<std::byte> control;
  Payload payload;
};

// A Status as the control part of kErrorReply, kRefuse and kAbort.
std::vector<std::byte> encode_status(const Status& status);
// What a peer said went wrong; never ok. Texts are cut to a bounded length.
Status decode_status(ConstBytes control);

// The answers to a request.
Message make_reply(const FrameHeader& request);
Message make_error_reply(const FrameHeader& request, const Status& status);

}  // namespace fleet::transport
