#include "strategies/local_strategy.h"

#include "base/error.h"
#include "strategies/config/options_text.h"

namespace fleet::strategies {
namespace {

class LocalRuntime final : public StrategyRuntime {
 public:
  explicit LocalRuntime(int shards) : shards_(shards) {}

  void init_worker() override {}
  void stop_worker() override {}
  void barrier_worker() override {}
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return {values.begin(), values.end()};
  }

  fluid::StepShards shards() const override { return {0, shards_, shards_}; }
  void begin_step(const fluid::Program&, uint64_t) override {}
  void end_step(const fluid::Program&, uint64_t) override {}
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    throw_error(ErrorCode::kPrecondition, {.what = "a local job has nobody to communicate with",
                                           .where = "op '" + call.op.type + "'",
                                           .fix = "start the job with launch_ps or launch"});
  }

 private:
  int shards_;
};

class Local final : public Strategy {
 public:
  explicit Local(LocalStrategy options) : options_(options) {}

  std::string_view name() const override { return "local"; }
  StrategyResult rewrite(const StrategyInput& input) const override {
    if (input.cluster.is_distributed()) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "this strategy is for a process that trains alone",
                   .where = "LocalStrategy",
                   .expected = "mode local",
                   .got = "mode " + std::string(role_maker::to_string(input.cluster.mode)),
                   .fix = "leave the strategy out, or take SyncStrategy with servers and "
                          "GradAllReduceStrategy without"});
    }
    const int shards = options_.logical_shards == 0 ? 1 : options_.logical_shards;
    return {input.main, input.startup, std::make_shared<LocalRuntime>(shards)};
  }
  std::string to_string() const override {
    return OptionsText().add("logical_shards", options_.logical_shards, 0).text();
  }

 private:
  LocalStrategy options_;
};

}  // namespace

std::shared_ptr<const Strategy> LocalStrategy::make() const {
  return std::make_shared<Local>(*this);
}

}  // namespace fleet::strategies
