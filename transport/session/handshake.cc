#include "transport/session/handshake.h"

#include <algorithm>
#include <set>
#include <unistd.h>

#include "base/archive.h"
#include "base/strings.h"
#include "transport/session/same_bits.h"

namespace fleet::transport {
namespace {

constexpr size_t kMaxNameBytes = 256;

// Control parts of the proof frames: the terms, then 32-byte fields.
constexpr size_t kTermsBytes = 3;

std::vector<std::byte> pack(const LinkTerms& terms, std::initializer_list<ConstBytes> fields) {
  std::vector<std::byte> control = {static_cast<std::byte>(terms.mode),
                                    static_cast<std::byte>(terms.link),
                                    static_cast<std::byte>(terms.protection)};
  for (const ConstBytes field : fields) control.insert(control.end(), field.begin(), field.end());
  return control;
}

Message frame(Verb verb, std::vector<std::byte> control) {
  Message message;
  message.header.verb = verb;
  message.control = std::move(control);
  return message;
}

Status bad_frame(std::string what, std::string expected, std::string got) {
  return Status(ErrorCode::kBadFrame, {.what = std::move(what),
                                       .where = "handshake",
                                       .expected = std::move(expected),
                                       .got = std::move(got),
                                       .fix = {}});
}

Status unproved(std::string what, std::string expected, std::string got) {
  return Status(ErrorCode::kAuthentication,
                {.what = std::move(what),
                 .where = "handshake",
                 .expected = std::move(expected),
                 .got = std::move(got),
                 .fix = "set the same FLEET_JOB_SECRET for every process of the job"});
}

Status check_size(ConstBytes control, size_t fields) {
  const size_t wanted = kTermsBytes + fields * sizeof(Nonce);
  if (control.size() == wanted) return {};
  return bad_frame("a handshake frame has the wrong length", str_cat(wanted, " bytes"),
                   str_cat(control.size(), " bytes"));
}

LinkTerms terms_in(ConstBytes control) {
  return {static_cast<AuthMode>(control[0]), static_cast<LinkKind>(control[1]),
          static_cast<FrameProtection>(control[2])};
}

template <class Field>
Field field_of(ConstBytes control, size_t index) {
  Field field;
  std::copy_n(control.begin() + static_cast<std::ptrdiff_t>(kTermsBytes + index * field.size()),
              field.size(), field.begin());
  return field;
}

bool known_role(PeerRole role) {
  return role >= PeerRole::kWorker && role <= PeerRole::kLauncher;
}

Status check_hello(const Hello& hello) {
  const auto wrong = [](std::string what) {
    return bad_frame(std::move(what), "a hello of this version", "something else");
  };
  if (!known_role(hello.member.role)) return wrong("a hello has an unknown role");
  if (hello.callee && !known_role(hello.callee->role)) return wrong("a hello has an unknown role");
  if (hello.lane != LaneKind::kControl && hello.lane != LaneKind::kData) {
    return wrong("a hello has an unknown kind of lane");
  }
  if (hello.job_id.size() > kMaxNameBytes || hello.instruction_set.size() > kMaxNameBytes) {
    return wrong("a hello has a name that is too long");
  }
  return {};
}

class Differences {
 public:
  Differences(const Hello& ours, const Hello& theirs) {
    ours_ = ours.member.to_string() + ":";
    theirs_ = theirs.member.to_string() + ":";
  }
  template <class T>
  void compare(std::string_view name, const T& ours, const T& theirs) {
    if (ours == theirs) return;
    add(name, str_cat(ours), str_cat(theirs));
  }
  void add(std::string_view name, const std::string& ours, const std::string& theirs) {
    const std::string_view separator = names_.empty() ? " " : ", ";
    ours_ += str_cat(separator, name, " = ", ours);
    theirs_ += str_cat(separator, name, " = ", theirs);
    names_ += str_cat(names_.empty() ? "" : ", ", name);
  }
  Status status() const {
    if (names_.empty()) return {};
    return Status(
        ErrorCode::kHandshakeRefused,
        {.what = str_cat("two processes do not belong to the same job: they differ in ", names_),
         .where = "handshake",
         .expected = ours_,
         .got = theirs_,
         .fix = "start every process of the job from the same build, program, options "
                "and job id; a process that an earlier job left behind must be ended"});
  }

 private:
  std::string names_;
  std::string ours_;
  std::string theirs_;
};

void compare_facts(const Hello& ours, const Hello& theirs, Differences& differences) {
  const bool same_bits = ours.require_same_bits || theirs.require_same_bits;
  std::set<std::string> names;
  for (const auto& [name, value] : ours.facts) names.insert(name);
  for (const auto& [name, value] : theirs.facts) names.insert(name);
  const auto of = [](const Hello& hello, const std::string& name) {
    const auto found = hello.facts.find(name);
    return found == hello.facts.end() ? std::string("(not set)") : found->second;
  };
  for (const auto& name : names) {
    if (name.starts_with(kBitsFact) && !same_bits) continue;
    differences.compare(name, of(ours, name), of(theirs, name));
  }
}

bool takes_part(const Hello& hello) {
  return hello.member.role == PeerRole::kWorker || hello.member.role == PeerRole::kServer;
}

}  // namespace

std::string_view role_name(PeerRole role) {
  switch (role) {
    case PeerRole::kWorker:
      return "worker";
    case PeerRole::kServer:
      return "server";
    case PeerRole::kLauncher:
      return "launcher";
  }
  return "unknown";
}

std::string MemberId::to_string() const {
  return str_cat(role_name(role), ' ', index);
}

Status compare_hellos(const Hello& ours, const Hello& theirs, Side our_side) {
  Differences differences(ours, theirs);
  differences.compare("job id", ours.job_id, theirs.job_id);
  if (takes_part(ours) && takes_part(theirs)) {
    differences.compare("number of workers", ours.worker_num, theirs.worker_num);
    differences.compare("number of servers", ours.server_num, theirs.server_num);
    compare_facts(ours, theirs, differences);
    if (ours.require_same_bits || theirs.require_same_bits) {
      differences.compare("instruction set", ours.instruction_set, theirs.instruction_set);
    }
    const uint32_t world =
        theirs.member.role == PeerRole::kWorker ? ours.worker_num : ours.server_num;
    if (theirs.member.index >= world) {
      differences.add("index", str_cat("below ", world), str_cat(theirs.member.index));
    }
  }
  const auto& called = our_side == Side::kAccepting ? theirs.callee : ours.callee;
  const MemberId& reached = our_side == Side::kAccepting ? ours.member : theirs.member;
  if (called && *called != reached) {
    const std::string meant = called->to_string();
    const std::string is = reached.to_string();
    differences.add("who is reached at the address", our_side == Side::kAccepting ? is : meant,
                    our_side == Side::kAccepting ? meant : is);
  }
  return differences.status();
}

Handshake::Handshake(Side side, HandshakeOptions options, LinkKind link,
                     std::optional<PeerProcess> peer)
    : side_(side),
      options_(std::move(options)),
      peer_process_(peer),
      state_(side == Side::kAccepting ? State::kResponse : State::kChallenge) {
  transcript_.terms = terms_of(options_.secret, link, peer);
}

void Handshake::draw_nonce(Nonce& nonce) {
  if (options_.random) {
    options_.random(nonce);
  } else {
    fill_random(nonce);
  }
}

void Handshake::derive_keys() {
  if (protection() == FrameProtection::kNone) return;
  const Side other = side_ == Side::kConnecting ? Side::kAccepting : Side::kConnecting;
  keys_ = Keys{derive_key(options_.secret, side_, transcript_),
               derive_key(options_.secret, other, transcript_)};
}

std::vector<Message> Handshake::start() {
  std::vector<Message> out;
  if (side_ == Side::kConnecting) return out;
  draw_nonce(transcript_.accepting);
  out.push_back(
      frame(Verb::kAuthChallenge, pack(transcript_.terms, {ConstBytes(transcript_.accepting)})));
  return out;
}

Message Handshake::refusal(const Status& status) {
  return frame(Verb::kRefuse, encode_status(status));
}

std::vector<Message> Handshake::fail(Status status) {
  state_ = State::kFailed;
  status_ = std::move(status);
  std::vector<Message> out;
  out.push_back(refusal(status_));
  return out;
}

std::vector<Message> Handshake::on_frame(const FrameHeader& header, ConstBytes control) {
  if (header.verb == Verb::kRefuse) {
    state_ = State::kFailed;
    status_ = decode_status(control);
    return {};
  }
  switch (state_) {
    case State::kChallenge:
      if (header.verb == Verb::kAuthChallenge) return on_challenge(control);
      break;
    case State::kResponse:
      if (header.verb == Verb::kAuthResponse) return on_response(control);
      break;
    case State::kConfirm:
      if (header.verb == Verb::kAuthConfirm) return on_confirm(control);
      break;
    case State::kHello:
      if (header.verb == Verb::kHello) return on_hello(control);
      break;
    case State::kWelcome:
      if (header.verb == Verb::kWelcome) return on_welcome(control);
      break;
    case State::kDone:
    case State::kFailed:
      break;
  }
  return fail(bad_frame("a handshake frame came out of its turn", "the next step of the handshake",
                        std::string(verb_name(header.verb))));
}

Status Handshake::check_terms(const LinkTerms& theirs) const {
  const LinkTerms& ours = transcript_.terms;
  const auto both = [this](std::string_view here, std::string_view there) {
    return std::pair(str_cat(options_.hello.member.to_string(), ": ", here),
                     str_cat("the other side: ", there));
  };
  if (theirs.mode != ours.mode) {
    const auto [here, there] = both(auth_mode_name(ours.mode), auth_mode_name(theirs.mode));
    return unproved("two processes prove themselves in different ways", here, there);
  }
  if (theirs.link != ours.link) {
    const auto [here, there] = both(link_kind_name(ours.link), link_kind_name(theirs.link));
    return Status(ErrorCode::kAuthentication,
                  {.what = "the two ends of a connection see different kinds of link, so another "
                           "process relays what they say",
                   .where = "handshake",
                   .expected = here,
                   .got = there,
                   .fix = "end the process in the middle; FLEET_TRANSPORT=tcp uses no Unix "
                          "sockets"});
  }
  if (theirs.protection != ours.protection) {
    const auto [here, there] =
        both(frame_protection_name(ours.protection), frame_protection_name(theirs.protection));
    return Status(ErrorCode::kAuthentication,
                  {.what = "two processes protect their frames in different ways",
                   .where = "handshake",
                   .expected = here,
                   .got = there,
                   .fix = "set the same FLEET_FRAME_INTEGRITY and FLEET_FRAME_ENCRYPTION for every "
                          "process of the job"});
  }
  if (ours.mode == AuthMode::kSameUser && (!peer_process_ || peer_process_->uid != geteuid())) {
    return unproved("the other end of the connection does not run as the same user",
                    str_cat("user ", geteuid(), " on a Unix socket"),
                    peer_process_ ? peer_process_->to_string() : std::string("a TCP connection"));
  }
  return {};
}

std::vector<Message> Handshake::on_challenge(ConstBytes control) {
  if (auto status = check_size(control, 1); !status.ok()) return fail(std::move(status));
  if (auto status = check_terms(terms_in(control)); !status.ok()) return fail(std::move(status));
  transcript_.accepting = field_of<Nonce>(control, 0);
  draw_nonce(transcript_.connecting);
  const Proof proof = prove(options_.secret, Side::kConnecting, transcript_);
  state_ = State::kConfirm;
  std::vector<Message> out;
  out.push_back(
      frame(Verb::kAuthResponse,
            pack(transcript_.terms, {ConstBytes(transcript_.connecting), ConstBytes(proof)})));
  return out;
}

std::vector<Message> Handshake::on_response(ConstBytes control) {
  if (auto status = check_size(control, 2); !status.ok()) return fail(std::move(status));
  if (auto status = check_terms(terms_in(control)); !status.ok()) return fail(std::move(status));
  transcript_.connecting = field_of<Nonce>(control, 0);
  const Proof expected = prove(options_.secret, Side::kConnecting, transcript_);
  if (!proofs_equal(expected, field_of<Proof>(control, 1))) {
    return fail(unproved("the connecting process does not know the job's secret",
                         str_cat("the secret of ", options_.hello.member.to_string(), " (from ",
                                 options_.secret.origin, ")"),
                         "another one"));
  }
  const Proof proof = prove(options_.secret, Side::kAccepting, transcript_);
  derive_keys();
  state_ = State::kHello;
  std::vector<Message> out;
  out.push_back(frame(Verb::kAuthConfirm, pack(transcript_.terms, {ConstBytes(proof)})));
  return out;
}

std::vector<Message> Handshake::on_confirm(ConstBytes control) {
  if (auto status = check_size(control, 1); !status.ok()) return fail(std::move(status));
  const Proof expected = prove(options_.secret, Side::kAccepting, transcript_);
  if (!proofs_equal(expected, field_of<Proof>(control, 0))) {
    return fail(unproved("the process that was reached does not know the job's secret",
                         str_cat("the secret of ", options_.hello.member.to_string(), " (from ",
                                 options_.secret.origin, ")"),
                         "another one"));
  }
  derive_keys();
  state_ = State::kWelcome;
  std::vector<Message> out;
  out.push_back(frame(Verb::kHello, encode(options_.hello)));
  return out;
}

std::vector<Message> Handshake::on_hello(ConstBytes control) {
  auto hello = decode<Hello>(control, "hello");
  if (!hello.ok()) return fail(hello.status());
  peer_ = std::move(hello.value());
  if (auto status = check_hello(peer_); !status.ok()) return fail(std::move(status));
  if (auto status = compare_hellos(options_.hello, peer_, side_); !status.ok()) {
    return fail(std::move(status));
  }
  if (options_.admit) {
    if (auto status = options_.admit(peer_); !status.ok()) return fail(std::move(status));
  }
  state_ = State::kDone;
  std::vector<Message> out;
  out.push_back(frame(Verb::kWelcome, encode(options_.hello)));
  return out;
}

std::vector<Message> Handshake::on_welcome(ConstBytes control) {
  auto hello = decode<Hello>(control, "welcome");
  if (!hello.ok()) return fail(hello.status());
  peer_ = std::move(hello.value());
  if (auto status = check_hello(peer_); !status.ok()) return fail(std::move(status));
  if (auto status = compare_hellos(options_.hello, peer_, side_); !status.ok()) {
    return fail(std::move(status));
  }
  state_ = State::kDone;
  return {};
}

}  // namespace fleet::transport
