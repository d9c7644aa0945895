#include "role_maker/role_maker.h"

#include <barrier>
#include <gmock/gmock.h>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace fleet::role_maker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string, std::less<>>;

// Ranks as threads of this process.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : texts_(static_cast<size_t>(size)), barrier_(size), size_(size) {}

  std::unique_ptr<GroupExchange> member(int rank) { return std::make_unique<Member>(*this, rank); }

  // What `make` gives at each rank; every rank runs in its own thread. Errors are returned as
  // texts in place of a spec.
  template <class Make>
  std::vector<std::variant<ClusterSpec, std::string>> run(const Make& make) {
    std::vector<std::variant<ClusterSpec, std::string>> results(texts_.size());
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        auto& result = results[static_cast<size_t>(rank)];
        try {
          result = make(rank, member(rank))->cluster_spec();
        } catch (const Error& error) {
          result = std::string(error.what());
        }
      });
    }
    threads.clear();
    return results;
  }

 private:
  class Member : public GroupExchange {
   public:
    Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return group_.size_; }
    Result<std::vector<std::string>> all_gather(const std::string& mine) override {
      group_.texts_[static_cast<size_t>(rank_)] = mine;
      group_.barrier_.arrive_and_wait();
      auto all = group_.texts_;
      group_.barrier_.arrive_and_wait();
      return all;
    }

   private:
    ThreadGroup& group_;
    int rank_;
  };

  std::vector<std::string> texts_;
  std::barrier<> barrier_;
  int size_;
};

std::unique_ptr<RoleMakerBase> symetric(const Variables& variables,
                                        std::unique_ptr<GroupExchange> exchange) {
  return std::make_unique<MPISymetricRoleMaker>(Environment(variables), std::move(exchange));
}

std::unique_ptr<RoleMakerBase> under_mpirun(int rank, int size, Variables variables,
                                            std::unique_ptr<GroupExchange> exchange) {
  variables["OMPI_COMM_WORLD_RANK"] = std::to_string(rank);
  variables["OMPI_COMM_WORLD_SIZE"] = std::to_string(size);
  return std::make_unique<PaddleCloudRoleMaker>(PaddleCloudOptions{}, Environment(variables),
                                                std::move(exchange));
}

TEST(PaddleCloudTest, AnswersLikeItsSpec) {
  PaddleCloudRoleMaker maker({}, Environment({{"TRAINING_ROLE", "TRAINER"},
                                              {"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,b:2"},
                                              {"PADDLE_TRAINERS_NUM", "2"},
                                              {"PADDLE_TRAINER_ID", "0"}}));
  maker.generate_role();
  EXPECT_TRUE(maker.is_worker());
  EXPECT_FALSE(maker.is_server());
  EXPECT_TRUE(maker.is_first_worker());
  EXPECT_EQ(maker.worker_index(), 0);
  EXPECT_EQ(maker.worker_num(), 2);
  EXPECT_EQ(maker.server_num(), 2);
  EXPECT_THAT(maker.server_endpoints(), ElementsAre("a:1", "b:2"));
  EXPECT_THROW(maker.server_index(), UsageError);
}

TEST(PaddleCloudTest, CollectiveWorkersAreWorkers) {
  PaddleCloudRoleMaker maker({.is_collective = true},
                             Environment({{"PADDLE_TRAINER_ENDPOINTS", "a:1"},
                                          {"PADDLE_CURRENT_ENDPOINT", "a:1"},
                                          {"PADDLE_TRAINER_ID", "0"}}));
  EXPECT_TRUE(maker.is_worker());
  EXPECT_TRUE(maker.is_first_worker());
  EXPECT_THAT(maker.worker_endpoints(), ElementsAre("a:1"));
}

TEST(PaddleCloudTest, RanksUnderMpirunAgreeOnJobIdAndSecret) {
  const auto specs = ThreadGroup(3).run(
      [](int rank, auto exchange) { return under_mpirun(rank, 3, {}, std::move(exchange)); });
  const auto& first = std::get<ClusterSpec>(specs[0]);
  EXPECT_EQ(first.job_secret.size(), 64u);
  EXPECT_FALSE(first.job_id.empty());
  for (int rank = 0; rank < 3; ++rank) {
    const auto& spec = std::get<ClusterSpec>(specs[static_cast<size_t>(rank)]);
    EXPECT_EQ(spec.index, rank);
    EXPECT_EQ(spec.job_id, first.job_id);
    EXPECT_EQ(spec.job_secret, first.job_secret);
  }
}

TEST(PaddleCloudTest, AGivenSecretAndJobIdAreNotReplaced) {
  const auto specs = ThreadGroup(2).run([](int rank, auto exchange) {
    return under_mpirun(rank, 2, {{"FLEET_JOB_SECRET", "s"}, {"FLEET_JOB_ID", "mine"}},
                        std::move(exchange));
  });
  for (const auto& spec : specs) {
    EXPECT_EQ(std::get<ClusterSpec>(spec).job_secret, "");
    EXPECT_EQ(std::get<ClusterSpec>(spec).job_id, "mine");
  }
}

TEST(PaddleCloudTest, ASecretOrJobIdAtSomeRanksOnlyIsRefusedByAll) {
  const auto secrets = ThreadGroup(2).run([](int rank, auto exchange) {
    return under_mpirun(rank, 2, rank == 0 ? Variables{{"FLEET_JOB_SECRET", "s"}} : Variables{},
                        std::move(exchange));
  });
  const auto ids = ThreadGroup(2).run([](int rank, auto exchange) {
    return under_mpirun(rank, 2, {{"FLEET_JOB_ID", std::to_string(rank)}}, std::move(exchange));
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(std::get<std::string>(secrets[rank]), HasSubstr("not set at rank 1"));
    EXPECT_THAT(std::get<std::string>(ids[rank]), HasSubstr("FLEET_JOB_ID"));
  }
}

TEST(PaddleCloudTest, AWorldOfAnotherSizeIsRefused) {
  const auto specs = ThreadGroup(1).run(
      [](int, auto exchange) { return under_mpirun(1, 4, {}, std::move(exchange)); });
  EXPECT_THAT(std::get<std::string>(specs[0]), HasSubstr("rank 1 of 4"));
}

TEST(MPISymetricTest, EvenRanksServeOddRanksWork) {
  const auto specs =
      ThreadGroup(4).run([](int, auto exchange) { return symetric({}, std::move(exchange)); });
  const auto& first = std::get<ClusterSpec>(specs[0]);
  EXPECT_EQ(first.server_endpoints.size(), 2u);
  EXPECT_NE(first.server_endpoints[0], first.server_endpoints[1]);
  for (int rank = 0; rank < 4; ++rank) {
    const auto& spec = std::get<ClusterSpec>(specs[static_cast<size_t>(rank)]);
    EXPECT_EQ(spec.mode, Mode::kParameterServer);
    EXPECT_EQ(spec.is_server(), rank % 2 == 0);
    EXPECT_EQ(spec.index, rank / 2);
    EXPECT_EQ(spec.worker_num, 2);
    EXPECT_EQ(spec.server_endpoints, first.server_endpoints);
    EXPECT_EQ(spec.job_id, first.job_id);
    EXPECT_EQ(spec.job_secret, first.job_secret);
  }
  EXPECT_EQ(parse_endpoint(first.server_endpoints[0], "").host, "127.0.0.1");
}

TEST(MPISymetricTest, PodIpIsTheServersAddress) {
  const auto specs = ThreadGroup(2).run([](int rank, auto exchange) {
    return symetric({{"POD_IP", rank == 0 ? "10.1.1.1" : "10.1.1.2"}}, std::move(exchange));
  });
  EXPECT_THAT(std::get<ClusterSpec>(specs[1]).server_endpoints[0], HasSubstr("10.1.1.1:"));
}

TEST(MPISymetricTest, ServersMayHaveAddressesOfIpv6) {
  const auto specs = ThreadGroup(2).run([](int, auto exchange) {
    return symetric({{"POD_IP", "fd00::7"}}, std::move(exchange));
  });
  const auto& spec = std::get<ClusterSpec>(specs[1]);
  EXPECT_EQ(parse_endpoint(spec.server_endpoints.at(0), "").host, "fd00::7");
  EXPECT_THAT(spec.server_endpoints, ElementsAre(HasSubstr("[fd00::7]:")));
}

TEST(MPISymetricTest, NeedsPairs) {
  for (const int size : {1, 3}) {
    const auto specs =
        ThreadGroup(size).run([](int, auto exchange) { return symetric({}, std::move(exchange)); });
    for (const auto& spec : specs) {
      EXPECT_THAT(std::get<std::string>(spec), HasSubstr("mpirun -np"));
    }
  }
}

TEST(UserDefinedTest, TakesArguments) {
  UserDefinedRoleMaker maker({.current_id = 1,
                              .role = Role::kServer,
                              .worker_num = 3,
                              .server_endpoints = {"a:1", "b:2"}});
  EXPECT_TRUE(maker.is_server());
  EXPECT_FALSE(maker.is_first_worker());
  EXPECT_EQ(maker.server_index(), 1);
  EXPECT_THROW(maker.worker_index(), UsageError);
  EXPECT_EQ(maker.cluster_spec().contract, Contract::kArguments);
}

TEST(UserDefinedTest, RefusesWrongArgumentsAtOnce) {
  EXPECT_THROW(UserDefinedRoleMaker({.worker_num = 1}), UsageError);
  EXPECT_THROW(UserDefinedRoleMaker({.worker_num = 0, .server_endpoints = {"a:1"}}), UsageError);
  EXPECT_THROW(UserDefinedRoleMaker({.worker_num = 1, .server_endpoints = {"a:1", "a:1"}}),
               UsageError);
  EXPECT_THROW(
      UserDefinedRoleMaker({.current_id = -1, .worker_num = 1, .server_endpoints = {"a:1"}}),
      UsageError);
  EXPECT_THROW(
      UserDefinedRoleMaker(
          {.current_id = 1, .role = Role::kServer, .worker_num = 5, .server_endpoints = {"a:1"}}),
      UsageError);
}

TEST(UserDefinedTest, ErrorsNameTheArgument) {
  const auto where = [](UserDefinedOptions options) {
    try {
      const UserDefinedRoleMaker maker(std::move(options));
    } catch (const UsageError& error) {
      return error.text().where;
    }
    return std::string();
  };
  const std::vector<std::string> servers = {"a:1"};
  EXPECT_EQ(where({.current_id = 2, .worker_num = 2, .server_endpoints = servers}),
            "UserDefinedRoleMaker, current_id");
  EXPECT_EQ(where({.server_endpoints = servers}), "UserDefinedRoleMaker, worker_num");
  EXPECT_EQ(where({.worker_num = 1, .server_endpoints = {"a"}}),
            "UserDefinedRoleMaker, server_endpoints");
  EXPECT_EQ(where({.worker_num = 1}), "UserDefinedRoleMaker, server_endpoints");
}

TEST(UserDefinedCollectiveTest, TakesAndChecksArguments) {
  UserDefinedCollectiveRoleMaker maker({.current_id = 1, .worker_endpoints = {"a:1", "b:2"}});
  EXPECT_EQ(maker.worker_index(), 1);
  EXPECT_EQ(maker.worker_num(), 2);
  EXPECT_EQ(maker.server_num(), 0);
  EXPECT_EQ(maker.cluster_spec().mode, Mode::kCollective);
  EXPECT_THROW(UserDefinedCollectiveRoleMaker({.current_id = 0}), UsageError);
  EXPECT_THROW(UserDefinedCollectiveRoleMaker({.current_id = 2, .worker_endpoints = {"a:1"}}),
               UsageError);
}

}  // namespace
}  // namespace fleet::role_maker
