#include "transport/session/secret.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr size_t kMinSecretCharacters = 16;
constexpr std::string_view kAdvice =
    "export FLEET_JOB_SECRET=$(openssl rand -hex 32) for every process of the job, or pass "
    "--insecure on a network that nobody else can reach";

Status secret_status(std::string what, std::string where, std::string expected, std::string got,
                     std::string fix) {
  return Status(ErrorCode::kAuthentication, {.what = std::move(what),
                                             .where = std::move(where),
                                             .expected = std::move(expected),
                                             .got = std::move(got),
                                             .fix = std::move(fix)});
}

Result<Secret> checked(std::string_view text, std::string origin) {
  const std::string_view trimmed = trim(text);
  if (trimmed.size() < kMinSecretCharacters) {
    return secret_status("the job's secret is too short", std::move(origin),
                         str_cat("at least ", kMinSecretCharacters, " characters"),
                         str_cat(trimmed.size(), " characters"), std::string(kAdvice));
  }
  return Secret::of_text(trimmed, std::move(origin));
}

// As chmod takes it.
std::string octal(unsigned mode) {
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), mode, 8).ptr;
  return {digits.data(), end};
}

bool in_group(gid_t group) {
  if (::getegid() == group) return true;
  const int count = ::getgroups(0, nullptr);
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, count)));
  return count > 0 && ::getgroups(count, groups.data()) == count &&
         std::find(groups.begin(), groups.end(), group) != groups.end();
}

// Kubernetes mounts secrets so for a pod with an fsGroup: root's, and readable for the pod's group.
bool mounted_for_our_group(const struct stat& facts) {
  return facts.st_uid == 0 && (facts.st_mode & (S_IRWXG | S_IRWXO)) == S_IRGRP &&
         in_group(facts.st_gid);
}

Result<Secret> from_file(const std::string& path) {
  const std::string where = str_cat("FLEET_JOB_SECRET_FILE=", path);
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) {
    return secret_status("the file with the job's secret cannot be read", where, "a readable file",
                         "no such file", std::string(kAdvice));
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0 && !mounted_for_our_group(facts)) {
    return secret_status("the file with the job's secret is open to other users", where,
                         "a file that only its owner may read, or root's that our group may read",
                         str_cat("mode ", octal(facts.st_mode & 0777U)),
                         str_cat("chmod 600 ", path));
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    return secret_status("the file with the job's secret cannot be read", where, "a readable file",
                         "an input error", std::string(kAdvice));
  }
  return checked(text.str(), "FLEET_JOB_SECRET_FILE");
}

Result<Secret> first_source(const SecretSources& sources) {
  if (sources.insecure) return Secret::insecure();
  if (sources.file) return from_file(*sources.file);
  if (sources.value) return checked(*sources.value, "FLEET_JOB_SECRET");
  if (sources.broadcast) return checked(*sources.broadcast, "MPI broadcast");
  if (sources.same_user) return Secret::same_user();
  return secret_status("the job has no secret, so its processes cannot tell friend from foe",
                       "FLEET_JOB_SECRET_FILE, FLEET_JOB_SECRET", "one of them set", "none",
                       std::string(kAdvice));
}

// HMAC-SHA256 of a label of 16 bytes and what makes the connection this one.
Proof authenticate(const Secret& secret, std::string_view label, const Transcript& transcript) {
  std::array<std::byte, 16 + 4 + sizeof(Nonce) * 2> message{};
  const auto label_bytes = std::as_bytes(std::span(label));
  std::copy(label_bytes.begin(), label_bytes.end(), message.begin());
  std::byte* at = message.data() + 16;
  *at++ = static_cast<std::byte>(transcript.terms.mode);
  *at++ = static_cast<std::byte>(transcript.terms.link);
  *at++ = static_cast<std::byte>(transcript.terms.protection);
  ++at;
  at = std::copy(transcript.accepting.begin(), transcript.accepting.end(), at);
  std::copy(transcript.connecting.begin(), transcript.connecting.end(), at);
  Proof proof{};
  unsigned int size = 0;
  const auto* made = HMAC(EVP_sha256(), secret.key.data(), static_cast<int>(secret.key.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(proof.data()), &size);
  if (made == nullptr || size != proof.size()) {
    throw_error(ErrorCode::kInternal, {.what = "HMAC-SHA256 is not available",
                                       .where = "OpenSSL",
                                       .expected = {},
                                       .got = {},
                                       .fix = {}});
  }
  return proof;
}

}  // namespace

std::string_view auth_mode_name(AuthMode mode) {
  switch (mode) {
    case AuthMode::kSecret:
      return "a job secret";
    case AuthMode::kSameUser:
      return "the same user on a Unix socket";
    case AuthMode::kInsecure:
      return "--insecure";
  }
  return "an unknown mode";
}

Secret Secret::of_text(std::string_view text, std::string origin) {
  Secret secret;
  secret.mode = AuthMode::kSecret;
  const auto bytes = std::as_bytes(std::span(text));
  secret.key.assign(bytes.begin(), bytes.end());
  secret.origin = std::move(origin);
  return secret;
}

Secret Secret::same_user() {
  Secret secret;
  secret.mode = AuthMode::kSameUser;
  secret.origin = "the user of this process";
  return secret;
}

Secret Secret::insecure() {
  Secret secret;
  secret.origin = "--insecure";
  return secret;
}

Result<Secret> choose_secret(const SecretSources& sources) {
  auto chosen = first_source(sources);
  if (chosen.ok()) chosen.value().protection = sources.protection;
  return chosen;
}

LinkTerms terms_of(const Secret& secret, LinkKind link, std::optional<PeerProcess> peer) {
  LinkTerms terms{secret.mode, link, FrameProtection::kNone};
  const bool private_link =
      link == LinkKind::kMemory || (link == LinkKind::kUnix && peer && peer->uid == ::geteuid());
  if (secret.mode == AuthMode::kSecret && !private_link) terms.protection = secret.protection;
  return terms;
}

Proof prove(const Secret& secret, Side prover, const Transcript& transcript) {
  if (secret.mode != AuthMode::kSecret) return {};
  return authenticate(secret, prover == Side::kConnecting ? "fleet-2-connect" : "fleet-2-accept",
                      transcript);
}

FrameKey derive_key(const Secret& secret, Side writer, const Transcript& transcript) {
  const Proof made = authenticate(
      secret, writer == Side::kConnecting ? "fleet-2-key-conn" : "fleet-2-key-acc", transcript);
  FrameKey key;
  std::copy_n(made.begin(), key.key.size(), key.key.begin());
  std::copy_n(made.begin() + key.key.size(), key.salt.size(), key.salt.begin());
  return key;
}

std::string shared_key(const Secret& secret, std::string_view use) {
  if (secret.mode != AuthMode::kSecret) return {};
  const Proof made = authenticate(secret, use, {});
  std::array<uint64_t, sizeof(Proof) / sizeof(uint64_t)> words{};
  std::memcpy(words.data(), made.data(), sizeof(Proof));
  std::string key;
  for (const uint64_t word : words) key += hex_digits(word);
  return key;
}

bool proofs_equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void fill_random(MutableBytes bytes) {
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) !=
      1) {
    throw_error(ErrorCode::kInternal, {.what = "no random numbers",
                                       .where = "OpenSSL RAND_bytes",
                                       .expected = {},
                                       .got = {},
                                       .fix = {}});
  }
}

}  // namespace fleet::transport
