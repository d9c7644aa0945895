#include "transport/rpc/long_message.h"

#include <algorithm>

#include "base/strings.h"

namespace fleet::transport {

std::vector<Message> message_frames(const FrameHeader& header, const SharedBytes& message) {
  const size_t size = message->size();
  std::vector<Message> frames(std::max<size_t>(1, (size + kPieceBytes - 1) / kPieceBytes));
  for (size_t piece = 0; piece < frames.size(); ++piece) {
    FrameHeader& mine = frames[piece].header = header;
    mine.piece = static_cast<uint32_t>(piece);
    mine.flags &= ~kFlagMore;
    if (piece + 1 < frames.size()) mine.flags |= kFlagMore;
    const size_t begin = piece * kPieceBytes;
    if (frames.size() > 1) {
      frames[piece].payload =
          Payload(message->data() + begin, std::min(kPieceBytes, size - begin), message);
    }
  }
  if (frames.size() == 1) frames.front().control = *message;
  return frames;
}

PayloadTarget MessageReader::target(const FrameHeader& header) {
  if (header.piece == 0) {
    bytes_.clear();
    pieces_ = 0;
  }
  taking_ = header.piece == pieces_;
  if (!taking_) return PayloadTarget::discard();
  const size_t before = bytes_.size();
  if (header.payload_bytes > kPieceBytes || before + header.payload_bytes > kMaxMessageBytes) {
    return PayloadTarget::refuse(Status(
        ErrorCode::kBadFrame,
        {.what = "a control message is too long",
         .where = std::string(verb_name(header.verb)),
         .expected = str_cat("pieces of ", kPieceBytes, " bytes, ", kMaxMessageBytes, " in all"),
         .got = str_cat(header.payload_bytes, " bytes after ", before),
         .fix = {}}));
  }
  bytes_.resize(before + header.payload_bytes);
  return PayloadTarget::into(MutableBytes(bytes_).subspan(before));
}

std::optional<ConstBytes> MessageReader::take(const FrameHeader& header, ConstBytes control) {
  if (header.payload_bytes == 0) return control;
  if (!std::exchange(taking_, false)) return std::nullopt;
  ++pieces_;
  if (header.has(kFlagMore)) return std::nullopt;
  return ConstBytes(bytes_);
}

}  // namespace fleet::transport
