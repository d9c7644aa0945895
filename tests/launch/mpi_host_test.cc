// What launch makes of what agents say, in orders that real ones seldom take.
#include <filesystem>
#include <gtest/gtest.h>
#include <vector>

#include "base/strings.h"
#include "launch/agent_channel.h"
#include "launch/host.h"
#include "launch/process/process_tree.h"
#include "tests/launch/launcher_process.h"

namespace fleet::launch::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Listener final : public HostListener {
  void on_started(size_t, pid_t) override {}
  void on_ended(size_t index, const Ending& ending) override {
    ended.push_back(str_cat(index, " ", ending.to_string()));
  }
  void on_stopped(size_t, bool) override {}
  void on_stuck(size_t, const std::string&) override {}
  void on_asked(size_t) override { ++asked; }
  void on_progress(size_t, std::string_view) override {}

  std::vector<std::string> ended;
  int asked = 0;
};

// A job whose mpirun only stays, so that the test speaks for the agents.
class MpiHostTest : public ::testing::Test {
 protected:
  MpiHostTest() {
    std::filesystem::rename(
        place_.script("echo \"$FLEET_AGENT_SOCKET $FLEET_AGENT_TOKEN\" > $MAILBOX\n"
                      "exec sleep 1000"),
        place_.path("mpirun"));
    job_.log_folder = place_.path("");
    job_.run_folder = place_.path("");
    job_.program = "/bin/true";
    job_.command = {"true"};
    job_.common.set("PATH", place_.path("") + ":/usr/bin:/bin");
    job_.common.set("MAILBOX", place_.path("mailbox"));
    job_.members = collective_members({{"127.0.0.1", 1}, {"127.0.0.1", 2}}, {}, place_.path(""));
    for (Member& member : job_.members) member.port.reset();
    host_ = make_mpi_host(job_, loop_, ports_, {});
    host_->start(listener_);
    const std::string told = place_.next_message();
    socket_ = told.substr(0, told.find(' '));
    token_ = told.substr(told.find(' ') + 1);
  }
  ~MpiHostTest() override {
    host_.reset();
    kill_descendants(seconds(5));
  }

  // The agent of a rank, which the host has admitted.
  AgentChannel agent(int rank) {
    AgentChannel channel(connect_abstract(socket_));
    channel.send({.fields = {"hello", token_, str_cat(rank), "agent"}});
    std::vector<AgentMessage> orders;
    for (int i = 0; i < 1000 && orders.empty(); ++i) {
      loop_.run_once(milliseconds(10));
      channel.receive(orders);
    }
    EXPECT_FALSE(orders.empty());
    return channel;
  }

  Workplace place_;
  EventLoop loop_;
  PortReservation ports_;
  Job job_;
  Listener listener_;
  std::unique_ptr<Host> host_;
  std::string socket_;
  std::string token_;
};

TEST_F(MpiHostTest, AgentsThatAreWokenAndLostAtOnceAreEachLostOnce) {
  {
    AgentChannel first = agent(0);
    AgentChannel second = agent(1);
    first.send({.fields = {"woken"}});
    second.send({.fields = {"woken"}});
  }
  for (int i = 0; i < 1000 && listener_.ended.size() < 2; ++i) loop_.run_once(milliseconds(10));
  ASSERT_EQ(listener_.ended.size(), 2U);
  EXPECT_TRUE(listener_.ended[0].starts_with("0 was lost: its agent"));
  EXPECT_TRUE(listener_.ended[1].starts_with("1 was lost: its agent"));
}

TEST_F(MpiHostTest, WhatOthersSaidBeforeCountsFirst) {
  AgentChannel first = agent(0);
  AgentChannel second = agent(1);
  second.send({.fields = {"exited", "3", "0", "0"}});
  first.send({.fields = {"asked"}});
  for (int i = 0; i < 1000 && listener_.asked == 0; ++i) loop_.run_once(milliseconds(10));
  ASSERT_EQ(listener_.asked, 1);
  ASSERT_EQ(listener_.ended.size(), 1U);
  EXPECT_TRUE(listener_.ended[0].starts_with("1 failed with exit code 3"));
}

}  // namespace
}  // namespace fleet::launch::testing
