// The first frames of every connection: mutual proof of the job's secret, then the exchange of
// hellos. A state machine from frames to frames; Session drives it.
//
//   accepting -> connecting   kAuthChallenge {terms, nonce}
//   connecting -> accepting   kAuthResponse  {terms, nonce, proof}
//   accepting -> connecting   kAuthConfirm   {terms, proof}
//   connecting -> accepting   kHello         {Hello}
//   accepting -> connecting   kWelcome       {Hello}      or at any point kRefuse {Status}
//
// From kHello on, frames are protected as the terms say.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/session/secret.h"

namespace fleet::transport {

enum class PeerRole : uint8_t { kWorker = 1, kServer = 2, kLauncher = 3 };
std::string_view role_name(PeerRole role);

struct MemberId {
  PeerRole role = PeerRole::kWorker;
  uint32_t index = 0;

  std::string to_string() const;  // "worker 1"
  // clang-tidy 14 takes the comparison with 0 for a pointer. NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const MemberId&, const MemberId&) = default;
};

enum class LaneKind : uint8_t { kControl = 1, kData = 2 };

// What a process says about itself. Both sides compare job, world and facts; any difference is
// refused with both values.
struct Hello {
  std::string job_id;
  MemberId member;
  uint32_t worker_num = 0;
  uint32_t server_num = 0;
  uint64_t incarnation = 0;        // random, new in each process
  std::string instruction_set;     // "avx512"
  bool require_same_bits = false;  // refuse other instruction sets and facts of kBitsFact, too
  // What every process of the job must agree on, by name: "program" -> a hash, "strategy" -> …
  std::map<std::string, std::string> facts;
  // Set for each connection.
  LaneKind lane = LaneKind::kData;
  uint32_t lane_index = 0;
  std::optional<MemberId> callee;  // whom the connecting side means to reach

  template <class Archive>
  void serialize(Archive& archive);
};

// Ok, or kHandshakeRefused that names every difference with both values.
Status compare_hellos(const Hello& ours, const Hello& theirs, Side our_side);

struct HandshakeOptions {
  Hello hello;
  Secret secret;
  // Last word of the accepting side about a peer whose hello fits.
  std::function<Status(const Hello& peer)> admit;
  // For nonces; the operating system's when empty.
  std::function<void(MutableBytes)> random;
};

class Handshake {
 public:
  // `link` and `peer`: as the link tells them.
  Handshake(Side side, HandshakeOptions options, LinkKind link, std::optional<PeerProcess> peer);

  // Control parts of handshake frames are at most this long, and there is no payload.
  static constexpr size_t kMaxControlBytes = 8 * 1024;

  // Frames to send at the start; then for each frame that came in. After a failure the frames
  // (a kRefuse) are still sent, then the link is closed.
  std::vector<Message> start();
  std::vector<Message> on_frame(const FrameHeader& header, ConstBytes control);
  // What a side says before it ends a connection because of something the other side did.
  static Message refusal(const Status& status);

  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }
  // Why it failed: kAuthentication, kHandshakeRefused or kBadFrame.
  const Status& status() const { return status_; }
  // Valid once done.
  const Hello& peer() const { return peer_; }

  // What protects the frames after the proofs. The keys are there as soon as the other side has
  // proved itself; null before that, and where the terms ask for no protection.
  FrameProtection protection() const { return transcript_.terms.protection; }
  struct Keys {
    FrameKey ours;
    FrameKey theirs;
  };
  const Keys* keys() const { return keys_ ? &*keys_ : nullptr; }

 private:
  enum class State : uint8_t { kChallenge, kResponse, kConfirm, kHello, kWelcome, kDone, kFailed };

  std::vector<Message> on_challenge(ConstBytes control);
  std::vector<Message> on_response(ConstBytes control);
  std::vector<Message> on_confirm(ConstBytes control);
  std::vector<Message> on_hello(ConstBytes control);
  std::vector<Message> on_welcome(ConstBytes control);
  std::vector<Message> fail(Status status);
  Status check_terms(const LinkTerms& theirs) const;
  void draw_nonce(Nonce& nonce);
  void derive_keys();

  Side side_;
  HandshakeOptions options_;
  std::optional<PeerProcess> peer_process_;
  State state_;
  Transcript transcript_;
  std::optional<Keys> keys_;
  Status status_;
  Hello peer_;
};

template <class Archive>
void serialize(Archive& archive, MemberId& member) {
  archive(member.role, member.index);
}

template <class Archive>
void Hello::serialize(Archive& archive) {
  archive(job_id, member, worker_num, server_num, incarnation, instruction_set, require_same_bits,
          facts, lane, lane_index, callee);
}

}  // namespace fleet::transport
