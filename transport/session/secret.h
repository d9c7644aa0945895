// The job's secret: where it comes from and how knowledge of it is proved.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/link/link.h"
#include "transport/session/frame.h"
#include "transport/session/frame_cipher.h"

namespace fleet::transport {

enum class AuthMode : uint8_t {
  kSecret = 1,    // challenge and response with HMAC-SHA256
  kSameUser = 2,  // Unix sockets only: the kernel says that both ends run as the same user
  kInsecure = 3,  // nothing is proved
};
std::string_view auth_mode_name(AuthMode mode);

struct Secret {
  AuthMode mode = AuthMode::kInsecure;
  std::vector<std::byte> key;  // for kSecret
  std::string origin;          // for messages: "FLEET_JOB_SECRET_FILE", never the secret itself
  // Of the frames on links that others could reach, with keys made from the secret.
  FrameProtection protection = FrameProtection::kIntegrity;

  static Secret of_text(std::string_view text, std::string origin);
  static Secret same_user();
  static Secret insecure();
};

// What the environment and the command line offer, in the order in which it is looked at.
// `insecure` wins over everything, because it was asked for by name.
struct SecretSources {
  bool insecure = false;
  std::optional<std::string> file;       // FLEET_JOB_SECRET_FILE: the path
  std::optional<std::string> value;      // FLEET_JOB_SECRET
  std::optional<std::string> broadcast;  // handed over by MPI
  bool same_user = false;                // every link of the job will be a Unix socket
  FrameProtection protection = FrameProtection::kIntegrity;
};

// The first source there is. kAuthentication with the command that makes a secret when there is
// none; a file that others may read, an empty one or a secret of fewer than 16 characters is an
// error too.
Result<Secret> choose_secret(const SecretSources& sources);

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;
enum class Side : uint8_t { kConnecting, kAccepting };

// What a side says of a connection before anything is proved. Both must say the same.
struct LinkTerms {
  AuthMode mode = AuthMode::kInsecure;
  LinkKind link = LinkKind::kTcp;
  FrameProtection protection = FrameProtection::kNone;
  friend bool operator==(const LinkTerms&, const LinkTerms&) = default;
};
// What this process asks of a link: frames need no protection in memory, on a Unix socket whose
// other end runs as the same user, and where there is no secret to make keys from.
LinkTerms terms_of(const Secret& secret, LinkKind link, std::optional<PeerProcess> peer);

// What a connection's proofs and keys are made of: new nonces of both sides, and its terms.
struct Transcript {
  LinkTerms terms;
  Nonce accepting{};
  Nonce connecting{};
};

// HMAC-SHA256(key, label || terms || accepting side's nonce || connecting side's nonce), where the
// label names the side that proves: a proof cannot be reflected, nor used for other terms or for
// another pair of nonces. Zeros when nothing is to be proved.
Proof prove(const Secret& secret, Side prover, const Transcript& transcript);
// Made the same way, from labels of their own: the key for what `writer` writes.
FrameKey derive_key(const Secret& secret, Side writer, const Transcript& transcript);
// A key of 64 hex digits for what another library sends, the same in all processes that have the
// secret; empty where there is none. `use`, of up to 16 characters, tells keys apart.
std::string shared_key(const Secret& secret, std::string_view use);
// In time that does not depend on where they differ.
bool proofs_equal(const Proof& a, const Proof& b);

// From the operating system.
void fill_random(MutableBytes bytes);

}  // namespace fleet::transport
