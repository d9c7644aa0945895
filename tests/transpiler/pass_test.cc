// Passes are named, listed, timed, switchable and verified.
#include "transpiler/pass.h"

#include <gmock/gmock.h>
#include <set>
#include <string>

#include "base/error.h"
#include "tests/transpiler/sample_nets.h"
#include "transpiler/distribute_transpiler.h"
#include "transpiler/pass_times.h"

namespace fleet::transpiler {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// Names of the passes that make every program of a job.
std::set<std::string> passes_of(const DistributeTranspilerConfig& config,
                                TranspileOptions options) {
  std::set<std::string> passes;
  options.pass_observer = [&passes](const PassEvent& event) {
    EXPECT_FALSE(event.purpose.empty()) << event.pass;
    if (event.finished) passes.insert(std::string(event.pass));
  };
  DistributeTranspiler transpiler(config);
  transpiler.transpile(options);
  if (config.mode == "pserver") transpiler.get_pserver_programs(server_endpoints(2).front());
  return passes;
}

TranspileOptions ranks_of(const SampleNet& net) {
  TranspileOptions options = options_for(net, 2, 2);
  options.trainers = "127.0.0.1:6170,127.0.0.1:6171";
  options.current_endpoint = "127.0.0.1:6170";
  return options;
}

TEST(Passes, AreListedWithEveryPassThatAnyJobHas) {
  const SampleNet scheduled = scheduled_net();
  const SampleNet tables = table_net(2);
  const SampleNet distributed = table_net(2, true);
  const SampleNet normalised = normalised_net();
  const SampleNet averaged = averaged_net();
  const SampleNet reference = reference_net();
  std::set<std::string> found;
  const auto run = [&found](const DistributeTranspilerConfig& config, TranspileOptions options) {
    found.merge(passes_of(config, std::move(options)));
  };
  run({.sync_mode = false}, options_for(scheduled, 2, 2));
  run({.paddle_schedules = true, .sync_mode = false, .half_async = true},
      options_for(scheduled, 2, 2));
  run({}, options_for(tables, 2, 2));
  run({}, options_for(distributed, 2, 2));
  run({}, options_for(normalised, 2, 2));
  run({}, options_for(averaged, 2, 2));
  run({.sync_mode = false, .geo_sgd_mode = true}, options_for(reference, 2, 2));
  run({.mode = "collective", .collective_mode = "grad_allreduce", .fuse_all_reduce_bytes = 1 << 20},
      ranks_of(reference));
  run({.mode = "collective", .collective_mode = "local_sgd"}, ranks_of(reference));
  run({.mode = "collective", .collective_mode = "local_sgd", .local_sgd_scheduled = true},
      ranks_of(reference));
  run({.mode = "nccl2"}, ranks_of(reference));
  const auto names = pass_names();
  EXPECT_EQ(found, std::set<std::string>(names.begin(), names.end()));
}

TEST(Passes, WithNothingToDoAreLeftOut) {
  const SampleNet net = reference_net();
  const auto passes = passes_of({}, options_for(net, 2, 2));
  EXPECT_THAT(passes, Contains("insert_sends"));
  EXPECT_THAT(passes, Contains("add_optimize_blocks"));
  for (const char* idle :
       {"place_remote_lookups", "send_table_gradients", "send_statistics", "append_counter_send",
        "fake_remote_tables", "add_learning_rate_block"}) {
    EXPECT_THAT(passes, Not(Contains(idle)));
  }
}

TEST(Passes, AreSwitchedOffByName) {
  const SampleNet net = reference_net();
  TranspileOptions options = options_for(net, 2, 2);
  DistributeTranspiler transpiler;
  options.skip_passes = {"append_receives"};
  EXPECT_THAT(passes_of({}, options), Not(Contains("append_receives")));
  transpiler.transpile(options);
  EXPECT_THAT(op_types(transpiler.get_trainer_program().global_block()), Not(Contains("recv")));
  options.skip_passes = {"insert_sendz"};
  EXPECT_THROW(transpiler.transpile(options), Error);
}

TEST(Passes, AFaultCarriesTheNameOfItsPass) {
  fluid::Program program;
  const std::vector<Pass> passes = {
      {"declare_slices", "Nothing.", [](fluid::Program&) {}},
      {"insert_sends", "Breaks it.",
       [](fluid::Program& broken) {
         fluid::Operator op;
         op.type = "assign";
         op.inputs["X"] = {"nobody"};
         broken.global_block().append_op(std::move(op));
       }},
      {"append_listen", "Nothing.", [](fluid::Program&) {}},
  };
  try {
    PassRunner{}.run(program, passes);
    ADD_FAILURE() << "not found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("after pass 'insert_sends'"));
    EXPECT_THAT(error.what(), HasSubstr("nobody"));
  }
}

// A millisecond passes at each look.
class SteppingClock : public Clock {
 public:
  TimePoint now() const override { return now_ += std::chrono::milliseconds(1); }

 private:
  mutable TimePoint now_{};
};

TEST(Passes, AreTimedByTheClockOfTheCaller) {
  const SteppingClock clock;
  PassTimes times(clock);
  const SampleNet net = reference_net();
  TranspileOptions options = options_for(net, 2, 2);
  options.pass_observer = [&times](const PassEvent& event) { times.hear(event); };
  DistributeTranspiler transpiler;
  transpiler.transpile(options);
  for (const std::string& endpoint : server_endpoints(2)) transpiler.get_pserver_program(endpoint);
  ASSERT_FALSE(times.times().empty());
  EXPECT_EQ(times.times().front().pass, "insert_sends");
  for (const PassTime& time : times.times()) {
    EXPECT_EQ(time.total, time.runs * Duration(std::chrono::milliseconds(1))) << time.pass;
    EXPECT_EQ(time.runs, time.pass == "append_listen" || time.pass == "declare_slices" ||
                                 time.pass == "add_optimize_blocks"
                             ? 2
                             : 1)
        << time.pass;
  }
}

}  // namespace
}  // namespace fleet::transpiler
