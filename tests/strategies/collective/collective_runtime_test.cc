#include "strategies/collective/collective_runtime.h"

#include <cmath>
#include <gmock/gmock.h>
#include <thread>

#include "base/error.h"
#include "fluid/ops/distributed/comm.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using fluid::Tensor;
using fluid::Value;
using ::testing::HasSubstr;

role_maker::ClusterSpec worker(int index, int workers) {
  role_maker::ClusterSpec spec;
  spec.mode = role_maker::Mode::kCollective;
  spec.index = index;
  spec.worker_num = workers;
  spec.job_id = "test";
  return spec;
}

// Calls ops on a runtime as an executor would.
class Caller {
 public:
  explicit Caller(CollectiveRuntime& runtime) : runtime_(runtime) {}

  std::unique_ptr<fluid::CommToken> operator()(const std::string& type, Value* value, int shard,
                                               fluid::AttributeMap attrs = {}) {
    fluid::Operator op;
    op.type = type;
    op.inputs["X"] = {"x"};
    op.outputs["Out"] = {"x"};
    op.attrs = std::move(attrs);
    Value* const values[] = {value};
    const fluid::CommCall call{.program = program_,
                               .block = program_.global_block(),
                               .op = op,
                               .scope = scope_,
                               .inputs = values,
                               .outputs = values,
                               .step = 0,
                               .shard = shard};
    return runtime_.run(call);
  }
  void begin(uint64_t step) { runtime_.begin_step(program_, step); }
  void end(uint64_t step) { runtime_.end_step(program_, step); }

 private:
  CollectiveRuntime& runtime_;
  fluid::Program program_;
  fluid::Scope scope_;
};

template <class Body>
void run_workers(int workers, int shards, const Body& body) {
  transport::InProcessGroup group(workers);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      CollectiveRuntime runtime(worker(rank, workers), [&] { return group.member(rank); },
                                {.logical_shards = shards});
      Caller call(runtime);
      body(runtime, call, rank);
    });
  }
}

float item(const Value& value) {
  return std::get<Tensor>(value).item<float>();
}

TEST(CollectiveRuntimeTest, GradientsOfAllShardsAreSummed) {
  run_workers(2, 5, [](CollectiveRuntime& runtime, Caller& call, int) {
    const auto own = runtime.shards();
    EXPECT_EQ(own.total, 5);
    for (uint64_t step = 0; step < 2; ++step) {
      call.begin(step);
      Value gradient;
      for (int shard = own.begin; shard < own.end; ++shard) {
        gradient = Tensor::scalar(static_cast<float>(shard + 1));
        call("c_sync_calc_stream", &gradient, shard);
        call("c_allreduce_sum", &gradient, shard);
      }
      call("c_sync_comm_stream", &gradient, -1);
      EXPECT_EQ(item(gradient), 15);
      call.end(step);
    }
  });
}

TEST(CollectiveRuntimeTest, TokensAndTheEndOfTheStepDeliverToo) {
  run_workers(3, 3, [](CollectiveRuntime&, Caller& call, int rank) {
    call.begin(0);
    Value first = Tensor::scalar(1.0f);
    Value second = Tensor::scalar(2.0f);
    auto token = call("c_allreduce_sum", &first, rank);
    call("c_allreduce_sum", &second, rank);
    token->wait();
    EXPECT_TRUE(token->done());
    EXPECT_EQ(item(first), 3);
    call.end(0);
    EXPECT_EQ(item(second), 6);
  });
}

TEST(CollectiveRuntimeTest, ATokenOfAStepThatWasGivenUpIsDone) {
  run_workers(1, 1, [](CollectiveRuntime&, Caller& call, int) {
    call.begin(0);
    Value gradient = Tensor::scalar(1.0f);
    auto token = call("c_allreduce_sum", &gradient, 0);
    call.begin(1);
    EXPECT_TRUE(token->done());
    EXPECT_NO_THROW(token->wait());
  });
}

TEST(CollectiveRuntimeTest, BroadcastGivesTheRootsParameter) {
  run_workers(3, 3, [](CollectiveRuntime&, Caller& call, int rank) {
    Value parameter = Tensor::scalar(static_cast<float>(rank));
    call("c_broadcast", &parameter, -1, fluid::to_attributes(fluid::CBroadcastAttrs{.root = 1}));
    EXPECT_EQ(item(parameter), 1);
  });
}

TEST(CollectiveRuntimeTest, WorkersMeetAndAddNumbers) {
  run_workers(3, 6, [](CollectiveRuntime& runtime, Caller&, int rank) {
    const std::vector<double> mine = {1.0, static_cast<double>(rank)};
    EXPECT_EQ(runtime.all_reduce_worker(mine), (std::vector<double>{3.0, 3.0}));
    runtime.barrier_worker();
    runtime.disconnect();
    runtime.disconnect();
    EXPECT_FALSE(runtime.connected());
  });
}

TEST(CollectiveRuntimeTest, AProgramMadeForAnotherRankIsRefused) {
  run_workers(1, 1, [](CollectiveRuntime&, Caller& call, int) {
    Value id;
    EXPECT_NO_THROW(call("c_gen_nccl_id", &id, -1));
    EXPECT_NO_THROW(call("c_comm_init", &id, -1,
                         fluid::to_attributes(fluid::CCommInitAttrs{.nranks = 1, .rank = 0})));
    try {
      call("c_comm_init", &id, -1,
           fluid::to_attributes(fluid::CCommInitAttrs{.nranks = 4, .rank = 3}));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kHandshakeRefused);
      EXPECT_THAT(error.what(), HasSubstr("rank 3 of 4"));
      EXPECT_THAT(error.what(), HasSubstr("rank 0 of 1"));
    }
  });
}

TEST(CollectiveRuntimeTest, ForeignOpsAndValuesAreRefusedByName) {
  run_workers(1, 1, [](CollectiveRuntime&, Caller& call, int) {
    Value empty;
    EXPECT_THROW(call("send", &empty, 0), Error);
    EXPECT_THROW(call("c_allreduce_sum", &empty, 0), ProgramError);
    Value words = Tensor::scalar(int32_t{1});
    EXPECT_THROW(call("c_allreduce_sum", &words, 0), ProgramError);
  });
}

// Of an op whose output is another variable.
Value result_of(CollectiveRuntime& runtime, const std::string& type, Value input,
                fluid::AttributeMap attrs = {}, int shard = -1) {
  fluid::Program program;
  fluid::Scope scope;
  fluid::Operator op;
  op.type = type;
  op.inputs["X"] = {"x"};
  op.outputs["Out"] = {"out"};
  op.attrs = std::move(attrs);
  Value output;
  Value* const inputs[] = {&input};
  Value* const outputs[] = {&output};
  EXPECT_EQ(runtime.run({.program = program,
                         .block = program.global_block(),
                         .op = op,
                         .scope = scope,
                         .inputs = inputs,
                         .outputs = outputs,
                         .step = 0,
                         .shard = shard}),
            nullptr);
  return output;
}

template <class T>
std::vector<T> values_of(const Value& value) {
  const auto values = std::get<Tensor>(value).values<T>();
  return {values.begin(), values.end()};
}

TEST(CollectiveRuntimeTest, RanksFindTheLargestTheSmallestAndTheProduct) {
  run_workers(3, 3, [](CollectiveRuntime& runtime, Caller&, int rank) {
    const auto r = static_cast<float>(rank);
    const Value value = Tensor::from(std::vector<float>{r, -r, r == 1 ? NAN : r, 2 + r}, {4});
    const auto largest = values_of<float>(result_of(runtime, "c_allreduce_max", value));
    EXPECT_EQ(largest[0], 2);
    EXPECT_EQ(largest[1], 0);
    EXPECT_TRUE(std::isnan(largest[2]));
    const auto smallest = values_of<float>(result_of(runtime, "c_allreduce_min", value));
    EXPECT_EQ(smallest[0], 0);
    EXPECT_EQ(smallest[1], -2);
    EXPECT_TRUE(std::isnan(smallest[2]));
    EXPECT_EQ(values_of<float>(result_of(runtime, "c_allreduce_prod", value))[3], 2 * 3 * 4);
    const Value whole = Tensor::from(std::vector<int32_t>{rank + 1}, {1});
    EXPECT_EQ(values_of<int32_t>(result_of(runtime, "c_allreduce_prod", whole))[0], 6);
  });
}

TEST(CollectiveRuntimeTest, RowsAreGatheredAndScattered) {
  run_workers(2, 2, [](CollectiveRuntime& runtime, Caller&, int rank) {
    const auto two = fluid::to_attributes(fluid::CRowsAttrs{.nranks = 2});
    const auto r = static_cast<float>(rank);
    const Value rows = Tensor::from(std::vector<float>{r, r + 10, r + 20, r + 30}, {2, 2});
    const Value all = result_of(runtime, "c_allgather", rows, two);
    EXPECT_EQ(std::get<Tensor>(all).shape(), (fluid::Shape{4, 2}));
    EXPECT_EQ(values_of<float>(all), (std::vector<float>{0, 10, 20, 30, 1, 11, 21, 31}));
    const Value part = result_of(runtime, "c_reducescatter", rows, two);
    EXPECT_EQ(std::get<Tensor>(part).shape(), (fluid::Shape{1, 2}));
    EXPECT_EQ(values_of<float>(part),
              rank == 0 ? (std::vector<float>{1, 21}) : (std::vector<float>{41, 61}));
    const Value odd = Tensor::from(std::vector<float>{1, 2, 3}, {3});
    EXPECT_THROW(result_of(runtime, "c_reducescatter", odd, two), ProgramError);
    const auto three = fluid::to_attributes(fluid::CRowsAttrs{.nranks = 3});
    EXPECT_THROW(result_of(runtime, "c_allgather", rows, three), Error);
  });
}

TEST(CollectiveRuntimeTest, WhatIsNeededAtOnceNeedsOneShardAWorker) {
  run_workers(1, 2, [](CollectiveRuntime& runtime, Caller&, int) {
    try {
      result_of(runtime, "c_allreduce_max", Tensor::scalar(1.0f), {}, 0);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotSupported);
      EXPECT_THAT(error.what(), HasSubstr("one logical shard a worker"));
    }
  });
}

TEST(CollectiveRuntimeTest, FewerShardsThanWorkersAreRefused) {
  EXPECT_THROW(CollectiveRuntime(worker(0, 3), nullptr, {.logical_shards = 2}), UsageError);
}

}  // namespace
}  // namespace fleet::strategies
