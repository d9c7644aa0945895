// The coordinator and its members in one thread under virtual time.
#pragma once

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/transport/support.h"
#include "transport/coordinator/coordinator.h"
#include "transport/coordinator/coordinator_client.h"

namespace fleet::transport::testing {

constexpr uint32_t kWorkers = 3;
constexpr uint32_t kServers = 2;

struct Member {
  SimLoop* loop = nullptr;
  std::unique_ptr<CoordinatorClient> client;
  std::optional<Verdict> verdict;
  bool workers_complete = false;
};

struct Job {
  explicit Job(uint64_t seed, SimFaults faults = {}, CoordinatorOptions options = {})
      : world(seed, faults), home(world.add_loop("server 0")) {
    options.worker_num = kWorkers;
    options.server_num = kServers;
    Logger log(LogLevel::kDebug,
               [this](LogLevel, std::string_view line) { lines.emplace_back(line); });
    coordinator = std::make_unique<Coordinator>(home, options, log);
    coordinator->set_on_verdict([this](const Verdict& v) { verdicts.push_back(v); });
    coordinator->set_on_all_complete([this] { ++all_complete; });
    ServerOptions listen = server_options(0);
    listen.hello = hello_of(PeerRole::kServer, 0, kWorkers, kServers);
    listen.random = seeded_random(world);
    server = std::make_unique<Server>(world, ServerLane{&home, coordinator.get()},
                                      ServerLane{&home, coordinator.get()}, listen, quiet());
    for (uint32_t i = 0; i < kServers; ++i) add(PeerRole::kServer, i);
    for (uint32_t i = 0; i < kWorkers; ++i) add(PeerRole::kWorker, i);
  }

  void add(PeerRole role, uint32_t index) {
    Member& member = members[MemberId{role, index}];
    member.loop = role == PeerRole::kServer && index == 0
                      ? &home
                      : &world.add_loop(MemberId{role, index}.to_string());
    CoordinatorClientOptions options;
    options.endpoint = Endpoint{"127.0.0.1", kServerPort};
    options.coordinator = MemberId{PeerRole::kServer, 0};
    options.hello = hello_of(role, index, kWorkers, kServers);
    options.secret = secret();
    options.random = seeded_random(world);
    member.client = std::make_unique<CoordinatorClient>(*member.loop, world, options, quiet());
    member.client->set_on_verdict([&member](const Verdict& v) { member.verdict = v; });
    member.client->set_on_workers_complete([&member] { member.workers_complete = true; });
  }

  void start() {
    ASSERT_TRUE(server->listen().ok());
    coordinator->start();
    for (auto& [id, member] : members) member.client->start();
    ASSERT_TRUE(run([this] { return present() == kWorkers + kServers; }, 2s));
  }
  size_t present() const {
    const auto all = coordinator->members();
    return static_cast<size_t>(std::count_if(
        all.begin(), all.end(), [](const auto& m) { return m.state == MemberState::kPresent; }));
  }
  bool run(const std::function<bool()>& done, Duration limit) {
    return world.run_until(done, world.now() + limit);
  }
  Member& worker(uint32_t index) { return members.at(MemberId{PeerRole::kWorker, index}); }
  Member& peer(uint32_t index) { return members.at(MemberId{PeerRole::kServer, index}); }
  // Every member but the given ones knows the verdict.
  bool all_know(const std::vector<MemberId>& except = {}) {
    return std::all_of(members.begin(), members.end(), [&](const auto& entry) {
      return entry.second.verdict ||
             std::find(except.begin(), except.end(), entry.first) != except.end();
    });
  }
  bool logged(std::string_view part) const {
    return std::any_of(lines.begin(), lines.end(), [part](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  }

  SimWorld world;
  SimLoop& home;
  std::vector<std::string> lines;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Server> server;
  std::map<MemberId, Member> members;
  std::vector<Verdict> verdicts;
  int all_complete = 0;
};

inline const MemberId kWorker1{PeerRole::kWorker, 1};

}  // namespace fleet::transport::testing
