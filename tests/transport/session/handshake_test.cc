#include "transport/session/handshake.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/transport/support.h"
#include "transport/session/same_bits.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

constexpr std::ptrdiff_t kTermsBytes = 3;

HandshakeOptions options_of(Hello hello, Secret proof) {
  HandshakeOptions options;
  options.hello = std::move(hello);
  options.secret = std::move(proof);
  return options;
}

struct Pair {
  explicit Pair(HandshakeOptions connecting, HandshakeOptions accepting,
                LinkKind worker_sees = LinkKind::kTcp, LinkKind server_sees = LinkKind::kTcp,
                std::optional<PeerProcess> peer = std::nullopt)
      : worker(Side::kConnecting, std::move(connecting), worker_sees, peer),
        server(Side::kAccepting, std::move(accepting), server_sees, peer) {}

  // Passes frames to and fro until both are silent; remembers every one.
  void run() {
    std::vector<Message> to_worker = server.start();
    std::vector<Message> to_server = worker.start();
    while (!to_worker.empty() || !to_server.empty()) {
      to_server = deliver(to_worker, worker, from_server);
      to_worker = deliver(to_server, server, from_worker);
    }
  }
  static std::vector<Message> deliver(const std::vector<Message>& frames, Handshake& to,
                                      std::vector<Message>& log) {
    std::vector<Message> answers;
    for (const Message& frame : frames) {
      log.push_back(frame);
      for (Message& answer : to.on_frame(frame.header, frame.control)) {
        answers.push_back(std::move(answer));
      }
    }
    return answers;
  }

  Handshake worker;
  Handshake server;
  std::vector<Message> from_server;
  std::vector<Message> from_worker;
};

Pair matching() {
  return Pair(options_of(hello_of(PeerRole::kWorker, 1), secret()),
              options_of(hello_of(PeerRole::kServer, 0), secret()));
}

TEST(Handshake, FriendsMeet) {
  Pair pair = matching();
  pair.run();
  EXPECT_TRUE(pair.worker.done());
  EXPECT_TRUE(pair.server.done());
  EXPECT_EQ(pair.server.peer().member, (MemberId{PeerRole::kWorker, 1}));
  EXPECT_EQ(pair.worker.peer().member, (MemberId{PeerRole::kServer, 0}));
}

TEST(Handshake, AnotherSecretIsRefusedOnBothSides) {
  Pair pair(options_of(hello_of(PeerRole::kWorker, 1), Secret::of_text("some other secret", "x")),
            options_of(hello_of(PeerRole::kServer, 0), secret()));
  pair.run();
  EXPECT_EQ(pair.server.status().code(), ErrorCode::kAuthentication);
  EXPECT_EQ(pair.worker.status().code(), ErrorCode::kAuthentication);
  for (const Message& frame : pair.from_worker) EXPECT_NE(frame.header.verb, Verb::kHello);
}

TEST(Handshake, AServerWithoutTheSecretIsRefusedByTheWorker) {
  // A false server that takes every proof for good and answers with one of its own.
  Handshake worker(Side::kConnecting, options_of(hello_of(PeerRole::kWorker, 1), secret()),
                   LinkKind::kTcp, {});
  Handshake guide(
      Side::kAccepting,
      options_of(hello_of(PeerRole::kServer, 0), Secret::of_text("a wrong one here", "")),
      LinkKind::kTcp, {});
  const auto challenge = guide.start();
  const auto response = worker.on_frame(challenge[0].header, challenge[0].control);
  ASSERT_EQ(response[0].header.verb, Verb::kAuthResponse);
  Message confirm;
  confirm.header.verb = Verb::kAuthConfirm;
  confirm.control = challenge[0].control;
  std::fill(confirm.control.begin() + kTermsBytes, confirm.control.end(), std::byte{0});
  const auto answer = worker.on_frame(confirm.header, confirm.control);
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].header.verb, Verb::kRefuse);
  EXPECT_EQ(worker.status().code(), ErrorCode::kAuthentication);
}

TEST(Handshake, AReplayedProofIsRefused) {
  Pair first = matching();
  first.run();
  Handshake server(Side::kAccepting, options_of(hello_of(PeerRole::kServer, 0), secret()),
                   LinkKind::kTcp, {});
  server.start();
  ASSERT_EQ(first.from_worker[0].header.verb, Verb::kAuthResponse);
  const auto answer = server.on_frame(first.from_worker[0].header, first.from_worker[0].control);
  EXPECT_TRUE(server.failed());
  EXPECT_EQ(answer.at(0).header.verb, Verb::kRefuse);
  EXPECT_EQ(server.status().code(), ErrorCode::kAuthentication);
}

TEST(Handshake, AReflectedProofIsRefused) {
  // The attacker gets the server's own proof for the nonces it wants, from a second connection on
  // which it plays the server's challenge back.
  Handshake worker(Side::kConnecting, options_of(hello_of(PeerRole::kWorker, 1), secret()),
                   LinkKind::kTcp, {});
  Handshake server(Side::kAccepting, options_of(hello_of(PeerRole::kServer, 0), secret()),
                   LinkKind::kTcp, {});
  const auto challenge = server.start();
  const auto response = worker.on_frame(challenge[0].header, challenge[0].control);
  // The worker's own proof comes back as the server's.
  Message confirm;
  confirm.header.verb = Verb::kAuthConfirm;
  confirm.control = response[0].control;
  confirm.control.erase(confirm.control.begin() + kTermsBytes,
                        confirm.control.begin() + kTermsBytes + sizeof(Nonce));
  worker.on_frame(confirm.header, confirm.control);
  EXPECT_TRUE(worker.failed());
  EXPECT_EQ(worker.status().code(), ErrorCode::kAuthentication);
}

TEST(Handshake, FramesOutOfTurnAreRefused) {
  Pair pair = matching();
  const auto challenge = pair.server.start();
  Message hello;
  hello.header.verb = Verb::kHello;
  pair.server.on_frame(hello.header, hello.control);
  EXPECT_EQ(pair.server.status().code(), ErrorCode::kBadFrame);
}

TEST(Handshake, TruncatedControlPartsAreRefused) {
  Pair whole = matching();
  whole.run();
  for (const Verb verb : {Verb::kAuthResponse, Verb::kHello}) {
    for (size_t cut = 0; cut < 60; cut += 7) {
      Handshake server(Side::kAccepting, options_of(hello_of(PeerRole::kServer, 0), secret()),
                       LinkKind::kTcp, {});
      Handshake worker(Side::kConnecting, options_of(hello_of(PeerRole::kWorker, 1), secret()),
                       LinkKind::kTcp, {});
      std::vector<Message> to_worker = server.start();
      while (!server.failed() && !server.done()) {
        std::vector<Message> answers;
        for (Message& frame : to_worker) {
          for (Message& answer : worker.on_frame(frame.header, frame.control)) {
            if (answer.header.verb == verb) answer.control.resize(cut);
            answers = server.on_frame(answer.header, answer.control);
          }
        }
        to_worker = std::move(answers);
      }
      EXPECT_TRUE(server.failed());
      EXPECT_EQ(server.status().code(), ErrorCode::kBadFrame);
    }
  }
}

TEST(Handshake, EveryDifferenceIsNamedOnBothSides) {
  struct Case {
    std::function<void(Hello&)> change;
    std::string ours;
    std::string theirs;
  };
  const std::vector<Case> cases = {
      {[](Hello& h) { h.job_id = "other"; }, "server 0: job id = job", "worker 1: job id = other"},
      {[](Hello& h) { h.worker_num = 3; }, "number of workers = 2", "number of workers = 3"},
      {[](Hello& h) { h.server_num = 1; }, "number of servers = 2", "number of servers = 1"},
      {[](Hello& h) { h.facts["program"] = "9"; }, "program = 0123abcd", "program = 9"},
      {[](Hello& h) { h.facts.erase("strategy"); }, "strategy = sync", "strategy = (not set)"},
      {[](Hello& h) { h.member.index = 2; }, "index = below 2", "index = 2"},
      {[](Hello& h) {
         h.callee = MemberId{PeerRole::kServer, 1};
       },
       "who is reached at the address = server 0", "who is reached at the address = server 1"},
      {[](Hello& h) {
         h.instruction_set = "avx512";
         h.require_same_bits = true;
       },
       "instruction set = avx2", "instruction set = avx512"},
  };
  for (const Case& item : cases) {
    Hello hello = hello_of(PeerRole::kWorker, 1);
    item.change(hello);
    Pair pair(options_of(hello, secret()), options_of(hello_of(PeerRole::kServer, 0), secret()));
    pair.run();
    for (const Status& status : {pair.worker.status(), pair.server.status()}) {
      EXPECT_EQ(status.code(), ErrorCode::kHandshakeRefused);
      const std::string text = status.to_string();
      EXPECT_NE(text.find(item.ours), std::string::npos) << text;
      EXPECT_NE(text.find(item.theirs), std::string::npos) << text;
    }
  }
}

TEST(Handshake, InstructionSetsMayDifferUnlessBitsMustBeTheSame) {
  Hello hello = hello_of(PeerRole::kWorker, 1);
  hello.instruction_set = "avx512";
  Pair pair(options_of(hello, secret()), options_of(hello_of(PeerRole::kServer, 0), secret()));
  pair.run();
  EXPECT_TRUE(pair.worker.done());
}

TEST(Handshake, VersionsMayDifferUnlessBitsMustBeTheSame) {
  for (const bool same_bits : {false, true}) {
    Hello worker = hello_of(PeerRole::kWorker, 1);
    Hello server = hello_of(PeerRole::kServer, 0);
    worker.facts["bits.libc"] = "2.36";
    server.facts["bits.libc"] = "2.41";
    server.require_same_bits = same_bits;
    EXPECT_EQ(differing_bits(worker, server), "bits.libc 2.36");
    Pair pair(options_of(worker, secret()), options_of(server, secret()));
    pair.run();
    EXPECT_EQ(pair.worker.done(), !same_bits);
    if (!same_bits) continue;
    EXPECT_EQ(pair.worker.status().code(), ErrorCode::kHandshakeRefused);
    const std::string text = pair.worker.status().to_string();
    EXPECT_NE(text.find("bits.libc = 2.36"), std::string::npos) << text;
    EXPECT_NE(text.find("bits.libc = 2.41"), std::string::npos) << text;
  }
}

TEST(Handshake, InsecureAndSecureDoNotMeet) {
  Pair pair(options_of(hello_of(PeerRole::kWorker, 1), Secret::insecure()),
            options_of(hello_of(PeerRole::kServer, 0), secret()));
  pair.run();
  for (const Status& status : {pair.worker.status(), pair.server.status()}) {
    EXPECT_EQ(status.code(), ErrorCode::kAuthentication);
    EXPECT_NE(status.to_string().find("--insecure"), std::string::npos);
    EXPECT_NE(status.to_string().find("a job secret"), std::string::npos);
  }
  Pair both(options_of(hello_of(PeerRole::kWorker, 1), Secret::insecure()),
            options_of(hello_of(PeerRole::kServer, 0), Secret::insecure()));
  both.run();
  EXPECT_TRUE(both.worker.done() && both.server.done());
}

TEST(Handshake, TheSameUserIsProvedByTheKernelOnly) {
  const auto meet = [](std::optional<PeerProcess> peer) {
    Pair pair(options_of(hello_of(PeerRole::kWorker, 1), Secret::same_user()),
              options_of(hello_of(PeerRole::kServer, 0), Secret::same_user()), LinkKind::kUnix,
              LinkKind::kUnix, peer);
    pair.run();
    return pair.server.done();
  };
  EXPECT_TRUE(meet(PeerProcess{geteuid(), 1}));
  EXPECT_FALSE(meet(PeerProcess{geteuid() + 1, 1}));
  EXPECT_FALSE(meet(std::nullopt));
}

TEST(Handshake, ARelayBetweenKindsOfLinkIsRefusedByBothSides) {
  for (const bool lies : {false, true}) {
    Pair pair(options_of(hello_of(PeerRole::kWorker, 1), secret()),
              options_of(hello_of(PeerRole::kServer, 0), secret()), LinkKind::kUnix, LinkKind::kTcp,
              PeerProcess{geteuid(), 1});
    // A relay that also changes what the other side says of the link has no proof for it.
    auto challenge = pair.server.start();
    if (lies) {
      challenge[0].control[1] = static_cast<std::byte>(LinkKind::kUnix);
      challenge[0].control[2] = static_cast<std::byte>(FrameProtection::kNone);
    }
    auto answer = pair.worker.on_frame(challenge[0].header, challenge[0].control);
    if (lies) {
      ASSERT_EQ(answer[0].header.verb, Verb::kAuthResponse);
      answer[0].control[1] = static_cast<std::byte>(LinkKind::kTcp);
      answer[0].control[2] = static_cast<std::byte>(FrameProtection::kIntegrity);
    } else {
      EXPECT_NE(pair.worker.status().to_string().find("relays"), std::string::npos);
    }
    pair.server.on_frame(answer[0].header, answer[0].control);
    EXPECT_TRUE(pair.server.failed());
    EXPECT_EQ(pair.server.status().code(), ErrorCode::kAuthentication);
  }
}

TEST(Handshake, ProtectionIsAgreedAndKeysAreEachSidesOwn) {
  Pair pair = matching();
  pair.run();
  ASSERT_NE(pair.worker.keys(), nullptr);
  ASSERT_NE(pair.server.keys(), nullptr);
  EXPECT_EQ(pair.worker.protection(), FrameProtection::kIntegrity);
  EXPECT_EQ(pair.worker.keys()->ours.key, pair.server.keys()->theirs.key);
  EXPECT_EQ(pair.worker.keys()->theirs.key, pair.server.keys()->ours.key);
  EXPECT_NE(pair.worker.keys()->ours.key, pair.worker.keys()->theirs.key);
  Pair again = matching();
  again.run();
  EXPECT_NE(pair.worker.keys()->ours.key, again.worker.keys()->ours.key);

  Secret encrypted = secret();
  encrypted.protection = FrameProtection::kEncryption;
  Pair unlike(options_of(hello_of(PeerRole::kWorker, 1), encrypted),
              options_of(hello_of(PeerRole::kServer, 0), secret()));
  unlike.run();
  for (const Status& status : {unlike.worker.status(), unlike.server.status()}) {
    EXPECT_EQ(status.code(), ErrorCode::kAuthentication);
    EXPECT_NE(status.to_string().find("FLEET_FRAME_ENCRYPTION"), std::string::npos);
  }
}

TEST(Handshake, AnAdmissionHasTheLastWord) {
  HandshakeOptions accepting = options_of(hello_of(PeerRole::kServer, 0), secret());
  accepting.admit = [](const Hello& peer) {
    return Status(ErrorCode::kHandshakeRefused, {.what = peer.member.to_string() + " is here",
                                                 .where = {},
                                                 .expected = {},
                                                 .got = {},
                                                 .fix = {}});
  };
  Pair pair(options_of(hello_of(PeerRole::kWorker, 1), secret()), std::move(accepting));
  pair.run();
  EXPECT_EQ(pair.worker.status().text().what, "worker 1 is here");
}

TEST(Proof, IsHmacSha256OfLabelAndNonces) {
  Transcript transcript;
  transcript.terms = terms_of(secret(), LinkKind::kTcp, std::nullopt);
  transcript.connecting[31] = std::byte{1};
  const auto hex = [](const Proof& proof) {
    std::string text;
    for (const std::byte byte : proof) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      text += kDigits[std::to_integer<size_t>(byte >> 4)];
      text += kDigits[std::to_integer<size_t>(byte & std::byte{15})];
    }
    return text;
  };
  // From Python's hmac module, for the labels of docs/wire_protocol.md.
  const Proof proof = prove(secret(), Side::kConnecting, transcript);
  EXPECT_EQ(hex(proof), "aa660c2c54bf18bb1a2e64b95a1b76338f835064353e31445eaddce9a38c40e6");
  EXPECT_EQ(hex(prove(secret(), Side::kAccepting, transcript)),
            "6f36acb066920569f00e01f7ba3602f689dabd12d49bbdeec7668caf6298924c");
  const auto key = derive_key(secret(), Side::kConnecting, transcript);
  const auto other = derive_key(secret(), Side::kAccepting, transcript);
  EXPECT_NE(key.key, other.key);
  Proof made{};
  std::copy(key.key.begin(), key.key.end(), made.begin());
  std::copy(key.salt.begin(), key.salt.end(), made.begin() + 16);
  EXPECT_EQ(hex(made).substr(0, 40), "f952ad7c9be84610879a135baa0fb53ca554bcf1");
  std::swap(transcript.accepting, transcript.connecting);
  EXPECT_FALSE(proofs_equal(proof, prove(secret(), Side::kConnecting, transcript)));
  std::swap(transcript.accepting, transcript.connecting);
  transcript.terms.protection = FrameProtection::kNone;
  EXPECT_FALSE(proofs_equal(proof, prove(secret(), Side::kConnecting, transcript)));
}

class SecretFile {
 public:
  explicit SecretFile(const std::string& text, mode_t mode = 0600)
      : path_(::testing::TempDir() + "fleet_secret_" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  ~SecretFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(SharedKey, IsOfTheSecretAndTheUse) {
  const Secret one = Secret::of_text("a secret of one job", "a test");
  const std::string key = shared_key(one, "fleet-2-nccl");
  EXPECT_EQ(key.size(), 64U);
  EXPECT_EQ(key, shared_key(Secret::of_text("a secret of one job", "another"), "fleet-2-nccl"));
  EXPECT_NE(key, shared_key(one, "another use"));
  EXPECT_NE(key, shared_key(Secret::of_text("a secret of two jobs", "a test"), "fleet-2-nccl"));
  EXPECT_EQ(shared_key(Secret::same_user(), "fleet-2-nccl"), "");
  EXPECT_EQ(shared_key(Secret::insecure(), "fleet-2-nccl"), "");
}

TEST(ChooseSecret, TakesTheFirstSourceThereIs) {
  const SecretFile file("the secret of the file\n");
  SecretSources sources;
  EXPECT_EQ(choose_secret(sources).status().code(), ErrorCode::kAuthentication);
  EXPECT_NE(choose_secret(sources).status().text().fix.find("openssl rand"), std::string::npos);
  sources.same_user = true;
  EXPECT_EQ(choose_secret(sources).value().mode, AuthMode::kSameUser);
  sources.broadcast = "broadcast by rank nought";
  EXPECT_EQ(choose_secret(sources).value().origin, "MPI broadcast");
  sources.value = "the value of the variable";
  EXPECT_EQ(choose_secret(sources).value().origin, "FLEET_JOB_SECRET");
  sources.file = file.path();
  EXPECT_EQ(choose_secret(sources).value().origin, "FLEET_JOB_SECRET_FILE");
  EXPECT_EQ(choose_secret(sources).value().key.size(), 22U);
  sources.insecure = true;
  EXPECT_EQ(choose_secret(sources).value().mode, AuthMode::kInsecure);
}

TEST(ChooseSecret, RefusesOpenFilesAndShortSecrets) {
  const SecretFile file("the secret of the file\n", 0644);
  SecretSources sources;
  sources.file = file.path();
  EXPECT_NE(choose_secret(sources).status().text().fix.find("chmod 600"), std::string::npos);
  sources.file = "/nowhere/at/all";
  EXPECT_FALSE(choose_secret(sources).ok());
  sources.file.reset();
  sources.value = "short";
  EXPECT_EQ(choose_secret(sources).status().text().got, "5 characters");
}

// As Kubernetes mounts secrets for an fsGroup. Nobody else can make files of root's.
TEST(ChooseSecret, TakesAFileOfRootsThatOurGroupMayRead) {
  const auto taken = [](mode_t mode, gid_t group) {
    const SecretFile file("the secret of the file\n", mode);
    const bool given = ::chown(file.path().c_str(), static_cast<uid_t>(-1), group) == 0;
    SecretSources sources;
    sources.file = file.path();
    return given && choose_secret(sources).ok();
  };
  const bool root = geteuid() == 0;
  EXPECT_EQ(taken(0440, getegid()), root);
  EXPECT_EQ(taken(0640, getegid()), root);
  EXPECT_FALSE(taken(0460, getegid()));
  EXPECT_FALSE(taken(0444, getegid()));
  EXPECT_FALSE(taken(0440, 54321));
}

}  // namespace
}  // namespace fleet::transport
