#include "transport/session/frame_cipher.h"

#include <algorithm>
#include <cstring>
#include <openssl/evp.h>

namespace fleet::transport {
namespace {

// What one call of OpenSSL takes: its lengths are ints, and whole blocks keep it on its fast path.
constexpr size_t kMostAtOnce = size_t{1} << 30;

void check(int outcome) {
  if (outcome == 1) return;
  throw_error(
      ErrorCode::kInternal,
      {.what = "AES-128-GCM failed", .where = "OpenSSL", .expected = {}, .got = {}, .fix = {}});
}

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};

}  // namespace

struct FrameCipher::Context {
  std::unique_ptr<EVP_CIPHER_CTX, FreeContext> evp{EVP_CIPHER_CTX_new()};

  void update(unsigned char* out, ConstBytes in) const {
    while (!in.empty()) {
      const size_t now = std::min(in.size(), kMostAtOnce);
      int written = 0;
      check(EVP_CipherUpdate(evp.get(), out, &written, raw(in.data()), static_cast<int>(now)));
      in = in.subspan(now);
      if (out != nullptr) out += now;
    }
  }
};

std::string_view frame_protection_name(FrameProtection protection) {
  switch (protection) {
    case FrameProtection::kNone:
      return "none";
    case FrameProtection::kIntegrity:
      return "integrity";
    case FrameProtection::kEncryption:
      return "encryption";
  }
  return "an unknown protection";
}

FrameCipher::FrameCipher(Use use, FrameProtection protection, const FrameKey& key)
    : protection_(protection), context_(std::make_unique<Context>()) {
  std::copy(key.salt.begin(), key.salt.end(), nonce_.begin());
  check(context_->evp != nullptr ? 1 : 0);
  check(EVP_CipherInit_ex(context_->evp.get(), EVP_aes_128_gcm(), nullptr, raw(key.key.data()),
                          nullptr, use == Use::kSeal ? 1 : 0));
}

FrameCipher::~FrameCipher() = default;

void FrameCipher::begin() {
  std::memcpy(nonce_.data() + sizeof(FrameKey::salt), &parts_, sizeof parts_);
  ++parts_;
  check(EVP_CipherInit_ex(context_->evp.get(), nullptr, nullptr, nullptr, raw(nonce_.data()), -1));
}

void FrameCipher::associate(ConstBytes bytes) {
  context_->update(nullptr, bytes);
}

void FrameCipher::process(ConstBytes in, std::byte* out) {
  context_->update(encrypts() ? raw(out) : nullptr, in);
}

FrameTag FrameCipher::seal() {
  FrameTag tag;
  int written = 0;
  unsigned char nothing[EVP_MAX_BLOCK_LENGTH];
  check(EVP_CipherFinal_ex(context_->evp.get(), nothing, &written));
  check(EVP_CIPHER_CTX_ctrl(context_->evp.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()));
  return tag;
}

bool FrameCipher::opens(const FrameTag& tag) {
  FrameTag expected = tag;
  int written = 0;
  unsigned char nothing[EVP_MAX_BLOCK_LENGTH];
  check(
      EVP_CIPHER_CTX_ctrl(context_->evp.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()));
  return EVP_CipherFinal_ex(context_->evp.get(), nothing, &written) == 1;
}

}  // namespace fleet::transport
