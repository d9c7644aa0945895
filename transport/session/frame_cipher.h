// Keyed integrity, and on request encryption, of the frames of one connection in one direction:
// GMAC or AES-128-GCM (NIST SP 800-38D) through OpenSSL. docs/wire_protocol.md says what is
// covered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "transport/link/bytes.h"

namespace fleet::transport {

enum class FrameProtection : uint8_t {
  kNone = 0,
  kIntegrity = 1,   // a changed, left out, repeated or added frame is noticed
  kEncryption = 2,  // integrity, and control parts and payloads cannot be read
};
std::string_view frame_protection_name(FrameProtection protection);

constexpr size_t kTagBytes = 16;
using FrameTag = std::array<std::byte, kTagBytes>;

// Of one direction of one connection; never used for a second one.
struct FrameKey {
  std::array<std::byte, 16> key{};
  std::array<std::byte, 4> salt{};  // the nonce of part n is salt || n
};

// A stream of parts, each with a tag of its own: the sealing side and the opening side go through
// the same parts in the same order. Not thread-safe. kInternal when OpenSSL has no AES-GCM.
class FrameCipher {
 public:
  enum class Use : uint8_t { kSeal, kOpen };

  // `protection` is not kNone.
  FrameCipher(Use use, FrameProtection protection, const FrameKey& key);
  ~FrameCipher();
  FrameCipher(const FrameCipher&) = delete;
  FrameCipher& operator=(const FrameCipher&) = delete;

  bool encrypts() const { return protection_ == FrameProtection::kEncryption; }

  // The next part. Then its bytes: first those that are only authenticated, then the content.
  void begin();
  void associate(ConstBytes bytes);
  // Content, in as many calls as it comes in. kIntegrity: authenticated, `out` is not written.
  // kEncryption: as many bytes are written to `out`, which may be where they are read.
  void process(ConstBytes in, std::byte* out);
  // The end of the part.
  FrameTag seal();
  bool opens(const FrameTag& tag);

 private:
  struct Context;

  FrameProtection protection_;
  std::array<std::byte, 12> nonce_{};
  uint64_t parts_ = 0;
  std::unique_ptr<Context> context_;
};

}  // namespace fleet::transport
