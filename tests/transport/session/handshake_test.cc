#include "transport/session/handshake.h"

#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/transport/support.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

HandshakeOptions options_of(Hello hello, Secret proof) {
  HandshakeOptions options;
  options.hello = std::move(hello);
  options.secret = std::move(proof);
  return options;
}

struct Pair {
  explicit Pair(HandshakeOptions connecting, HandshakeOptions accepting,
                std::optional<uint32_t> uid = std::nullopt)
      : worker(Side::kConnecting, std::move(connecting), uid),
        server(Side::kAccepting, std::move(accepting), uid) {}

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
  return Pair(options_of(hello_of(Role::kWorker, 1), secret()),
              options_of(hello_of(Role::kServer, 0), secret()));
}

TEST(Handshake, FriendsMeet) {
  Pair pair = matching();
  pair.run();
  EXPECT_TRUE(pair.worker.done());
  EXPECT_TRUE(pair.server.done());
  EXPECT_EQ(pair.server.peer().member, (MemberId{Role::kWorker, 1}));
  EXPECT_EQ(pair.worker.peer().member, (MemberId{Role::kServer, 0}));
}

TEST(Handshake, AnotherSecretIsRefusedOnBothSides) {
  Pair pair(options_of(hello_of(Role::kWorker, 1), Secret::of_text("some other secret", "x")),
            options_of(hello_of(Role::kServer, 0), secret()));
  pair.run();
  EXPECT_EQ(pair.server.status().code(), ErrorCode::kAuthentication);
  EXPECT_EQ(pair.worker.status().code(), ErrorCode::kAuthentication);
  for (const Message& frame : pair.from_worker) EXPECT_NE(frame.header.verb, Verb::kHello);
}

TEST(Handshake, AServerWithoutTheSecretIsRefusedByTheWorker) {
  // A false server that takes every proof for good and answers with one of its own.
  Handshake worker(Side::kConnecting, options_of(hello_of(Role::kWorker, 1), secret()), {});
  Handshake guide(Side::kAccepting,
                  options_of(hello_of(Role::kServer, 0), Secret::of_text("a wrong one here", "")),
                  {});
  const auto challenge = guide.start();
  const auto response = worker.on_frame(challenge[0].header, challenge[0].control);
  ASSERT_EQ(response[0].header.verb, Verb::kAuthResponse);
  Message confirm;
  confirm.header.verb = Verb::kAuthConfirm;
  confirm.control.assign(33, std::byte{0});
  confirm.control[0] = static_cast<std::byte>(AuthMode::kSecret);
  const auto answer = worker.on_frame(confirm.header, confirm.control);
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].header.verb, Verb::kRefuse);
  EXPECT_EQ(worker.status().code(), ErrorCode::kAuthentication);
}

TEST(Handshake, AReplayedProofIsRefused) {
  Pair first = matching();
  first.run();
  Handshake server(Side::kAccepting, options_of(hello_of(Role::kServer, 0), secret()), {});
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
  Handshake worker(Side::kConnecting, options_of(hello_of(Role::kWorker, 1), secret()), {});
  Handshake server(Side::kAccepting, options_of(hello_of(Role::kServer, 0), secret()), {});
  const auto challenge = server.start();
  const auto response = worker.on_frame(challenge[0].header, challenge[0].control);
  // The worker's own proof comes back as the server's.
  Message confirm;
  confirm.header.verb = Verb::kAuthConfirm;
  confirm.control.assign(1, static_cast<std::byte>(AuthMode::kSecret));
  confirm.control.insert(confirm.control.end(), response[0].control.begin() + 33,
                         response[0].control.end());
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
      Handshake server(Side::kAccepting, options_of(hello_of(Role::kServer, 0), secret()), {});
      Handshake worker(Side::kConnecting, options_of(hello_of(Role::kWorker, 1), secret()), {});
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
         h.callee = MemberId{Role::kServer, 1};
       },
       "who is reached at the address = server 0", "who is reached at the address = server 1"},
      {[](Hello& h) {
         h.instruction_set = "avx512";
         h.require_same_bits = true;
       },
       "instruction set = avx2", "instruction set = avx512"},
  };
  for (const Case& item : cases) {
    Hello hello = hello_of(Role::kWorker, 1);
    item.change(hello);
    Pair pair(options_of(hello, secret()), options_of(hello_of(Role::kServer, 0), secret()));
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
  Hello hello = hello_of(Role::kWorker, 1);
  hello.instruction_set = "avx512";
  Pair pair(options_of(hello, secret()), options_of(hello_of(Role::kServer, 0), secret()));
  pair.run();
  EXPECT_TRUE(pair.worker.done());
}

TEST(Handshake, InsecureAndSecureDoNotMeet) {
  Pair pair(options_of(hello_of(Role::kWorker, 1), Secret::insecure()),
            options_of(hello_of(Role::kServer, 0), secret()));
  pair.run();
  for (const Status& status : {pair.worker.status(), pair.server.status()}) {
    EXPECT_EQ(status.code(), ErrorCode::kAuthentication);
    EXPECT_NE(status.to_string().find("--insecure"), std::string::npos);
    EXPECT_NE(status.to_string().find("a job secret"), std::string::npos);
  }
  Pair both(options_of(hello_of(Role::kWorker, 1), Secret::insecure()),
            options_of(hello_of(Role::kServer, 0), Secret::insecure()));
  both.run();
  EXPECT_TRUE(both.worker.done() && both.server.done());
}

TEST(Handshake, TheSameUserIsProvedByTheKernelOnly) {
  const auto meet = [](std::optional<uint32_t> uid) {
    Pair pair(options_of(hello_of(Role::kWorker, 1), Secret::same_user()),
              options_of(hello_of(Role::kServer, 0), Secret::same_user()), uid);
    pair.run();
    return pair.server.done();
  };
  EXPECT_TRUE(meet(geteuid()));
  EXPECT_FALSE(meet(geteuid() + 1));
  EXPECT_FALSE(meet(std::nullopt));
}

TEST(Handshake, AnAdmissionHasTheLastWord) {
  HandshakeOptions accepting = options_of(hello_of(Role::kServer, 0), secret());
  accepting.admit = [](const Hello& peer) {
    return Status(ErrorCode::kHandshakeRefused, {.what = peer.member.to_string() + " is here",
                                                 .where = {},
                                                 .expected = {},
                                                 .got = {},
                                                 .fix = {}});
  };
  Pair pair(options_of(hello_of(Role::kWorker, 1), secret()), std::move(accepting));
  pair.run();
  EXPECT_EQ(pair.worker.status().text().what, "worker 1 is here");
}

TEST(Proof, IsHmacSha256OfLabelAndNonces) {
  const Nonce a{};
  Nonce b{};
  b[31] = std::byte{1};
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
  EXPECT_EQ(hex(prove(secret(), Side::kConnecting, a, b)),
            "eced166b013da0bc48bd451403e0be113d3c4474ba228c050b6dc2d1b6600836");
  EXPECT_EQ(hex(prove(secret(), Side::kAccepting, a, b)),
            "69de638ceb8fafad10dacb5882eecb083c7bdd5f8633c6bd61b6677a70ee1609");
  EXPECT_FALSE(proofs_equal(prove(secret(), Side::kConnecting, a, b),
                            prove(secret(), Side::kConnecting, b, a)));
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

TEST(MakeSecretText, IsLongAndNeverTheSame) {
  EXPECT_EQ(make_secret_text().size(), 64U);
  EXPECT_NE(make_secret_text(), make_secret_text());
}

}  // namespace
}  // namespace fleet::transport
