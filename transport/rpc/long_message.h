// Control messages that may be too long for one frame: they travel as pieces of bounded size, and
// the receiver's memory grows with the bytes that have come, never with a length that was said.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "transport/session/session.h"

namespace fleet::transport {

// A longer message is refused by its receiver.
constexpr uint64_t kMaxMessageBytes = uint64_t{4} << 30;

using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

// The frames of a request or an answer with this header: up to kPieceBytes one frame with the
// message as its control part; beyond that payloads of kPieceBytes (the last one may be shorter)
// whose `piece` counts from 0, all but the last with kFlagMore.
std::vector<Message> message_frames(const FrameHeader& header, const SharedBytes& message);

// Puts one such message together. A piece that comes again changes nothing; piece 0 begins anew.
class MessageReader {
 public:
  // Where the payload of a frame goes; kBadFrame when the message is longer than it may be.
  PayloadTarget target(const FrameHeader& header);
  // The frame is in. The whole message after its last frame, valid until the next call.
  std::optional<ConstBytes> take(const FrameHeader& header, ConstBytes control);

 private:
  std::vector<std::byte> bytes_;
  uint32_t pieces_ = 0;  // that have come
  bool taking_ = false;
};

}  // namespace fleet::transport
