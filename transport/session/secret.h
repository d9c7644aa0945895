// The job's secret: where it comes from and how knowledge of it is proved.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transport/session/frame.h"

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
};

// The first source there is. kAuthentication with the command that makes a secret when there is
// none; a file that others may read, an empty one or a secret of fewer than 16 characters is an
// error too.
Result<Secret> choose_secret(const SecretSources& sources);

// 32 random bytes as 64 hexadecimal digits: what launchers put into FLEET_JOB_SECRET.
std::string make_secret_text();

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;
enum class Side : uint8_t { kConnecting, kAccepting };

// HMAC-SHA256(key, label || accepting side's nonce || connecting side's nonce), where the label
// names the side that proves: a proof cannot be reflected, nor used for another pair of nonces.
Proof prove(const Secret& secret, Side prover, const Nonce& accepting, const Nonce& connecting);
// In time that does not depend on where they differ.
bool proofs_equal(const Proof& a, const Proof& b);

// From the operating system.
void fill_random(MutableBytes bytes);

}  // namespace fleet::transport
