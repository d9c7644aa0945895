// Mistakes that show when a program runs: feeds, fetches, and the values in them.
#include "base/strings.h"
#include "fluid/executor/executor.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/fluid/mistakes/mistakes.h"

namespace fleet::fluid::mistakes {
namespace {

constexpr ErrorCode kFeed = ErrorCode::kFeed;
constexpr ErrorCode kProgram = ErrorCode::kInvalidProgram;

Tensor rows(int64_t count, int64_t width) {
  return Tensor::zeros(DType::kFloat32, Shape{count, width});
}

Tensor ids(const std::vector<int64_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  return Tensor::from(values, Shape{count, 1});
}

// Runs the main program after its startup program.
void run(const Inputs& in, const Feed& feed, const std::vector<Fetch>& fetch, int shards = 1) {
  Executor executor(CPUPlace(), {.logical_shards = shards});
  executor.run(in.startup);
  executor.run(in.main, feed, fetch);
}

void add_feed_mistakes(std::vector<Mistake>& all) {
  all.push_back({"feed_that_is_missing",
                 [](const Inputs& in) { run(in, {}, {layers::relu(in.x).name()}); },
                 kFeed,
                 {"'x'", "relu", "float32[-1, 4]", "add it to the feed"}});
  all.push_back(
      {"feed_that_is_not_known",
       [](const Inputs& in) {
         run(in, {{"x", rows(2, 4)}, {"wholes", rows(2, 4)}}, {layers::relu(in.x).name()});
       },
       kFeed,
       {"feed 'wholes'", "did you mean 'whole'", "expected: each data variable of the program once",
        "got: wholes", "fix: correct the name"}});
  all.push_back({"feed_given_twice",
                 [](const Inputs& in) {
                   run(in, {{"x", rows(2, 4)}, {"x", rows(2, 4)}}, {layers::relu(in.x).name()});
                 },
                 kFeed,
                 {"fed twice", "feed 'x'", "expected: each data variable of the program once",
                  "got: x", "fix: correct the name"}});
  all.push_back(
      {"feed_of_another_type",
       [](const Inputs& in) {
         run(in, {{"x", Tensor::zeros(DType::kInt64, Shape{2, 4})}}, {layers::relu(in.x).name()});
       },
       kFeed,
       {"'x'", "float32", "int64"}});
  all.push_back({"feed_of_another_width",
                 [](const Inputs& in) {
                   run(in, {{"x", rows(2, 5)}}, {layers::relu(in.x).name()});
                 },
                 kFeed,
                 {"'x'", "[-1, 4]", "[2, 5]"}});
  all.push_back(
      {"feed_of_another_rank",
       [](const Inputs& in) {
         run(in, {{"x", Tensor::zeros(DType::kFloat32, Shape{4})}}, {layers::relu(in.x).name()});
       },
       kFeed,
       {"'x'", "[-1, 4]", "[4]"}});
  all.push_back(
      {"feed_of_nothing",
       [](const Inputs& in) {
         run(in, {{"x", Tensor()}}, {layers::relu(in.x).name()});
       },
       kFeed,
       {"feed 'x'", "expected: a tensor with memory", "got: nothing", "fix: fill the tensor"}});
  all.push_back({"feed_that_shards_do_not_divide",
                 [](const Inputs& in) {
                   const Variable loss = layers::mean(layers::fc(in.x, 1));
                   optimizer::SGD(optimizer::SGDOptions{}).minimize(loss);
                   run(in, {{"x", rows(6, 4)}}, {loss.name()}, 4);
                 },
                 ErrorCode::kUnevenBatch,
                 {"'x'", "a multiple of 4 rows", "4 or 8", "6 rows"}});
}

void add_fetch_mistakes(std::vector<Mistake>& all) {
  all.push_back(
      {"fetch_that_is_not_known",
       [](const Inputs& in) {
         layers::relu(in.x);
         run(in, {{"x", rows(2, 4)}}, {"relu_0.tmp_1"});
       },
       kProgram,
       {"fetch 'relu_0.tmp_1'", "did you mean 'relu_0.tmp_0'",
        "expected: a variable of the program", "got: relu_0.tmp_1", "fix: correct the name"}});
  all.push_back({"fetch_of_an_input_that_is_not_fed",
                 [](const Inputs& in) {
                   layers::relu(in.x);
                   run(in, {{"x", rows(2, 4)}}, {"y"});
                 },
                 kProgram,
                 {"fetch 'y'", "nothing feeds or writes this variable",
                  "expected: a variable that is fed, that an op writes", "got: y",
                  "fix: add it to the feed"}});
  all.push_back({"parameter_that_was_never_initialised",
                 [](const Inputs& in) {
                   const Variable h = layers::fc(in.x, 3);
                   Executor().run(in.main, {{"x", rows(2, 4)}}, {h.name()});
                 },
                 kProgram,
                 {"mul", "'fc_0.w_0'", "a tensor", "startup program"}});
  all.push_back({"scope_without_such_a_variable",
                 [](const Inputs& in) {
                   layers::fc(in.x, 3);
                   Executor executor;
                   executor.run(in.startup);
                   (void)executor.scope().tensor("fc_0.w_1");
                 },
                 kProgram,
                 {"'fc_0.w_1'", "no such variable in the scope", "startup program"}});
  all.push_back({"number_of_several_elements",
                 [](const Inputs&) { (void)rows(2, 4).item<float>(); },
                 kShape,
                 {"Tensor::item", "expected: [1]", "got: [2, 4]", "fix: read values()"}});
  all.push_back(
      {"values_of_another_type",
       [](const Inputs&) { (void)rows(2, 4).values<int64_t>(); },
       kType,
       {"Tensor[2, 4]", "expected: int64", "got: float32", "fix: read it with its own type"}});
  all.push_back(
      {"executor_of_no_shards",
       [](const Inputs&) { Executor executor(CPUPlace(), {.logical_shards = -1}); },
       kArgument,
       {"ExecutorOptions.logical_shards", "expected: 0 or more", "got: -1", "fix: leave it at 0"}});
}

void add_pruned_mistakes(std::vector<Mistake>& all) {
  all.push_back(
      {"fetch_of_what_was_pruned",
       [](const Inputs& in) {
         const Variable kept = layers::relu(in.x);
         const Variable cut = layers::tanh(in.x);
         const Program pruned = in.main.prune(std::vector<std::string>{kept.name()});
         Executor().run(pruned, {{"x", rows(2, 4)}}, {cut.name()});
       },
       kProgram,
       {"fetch 'tanh_0.tmp_0'", "prune cut it away",
        "expected: a variable of the program that runs",
        "got: a variable of the program before prune", "fix: name it among the targets of prune"}});
  all.push_back(
      {"fetch_of_what_was_pruned_from_a_copy",
       [](const Inputs& in) {
         const Variable kept = layers::relu(in.x);
         const Variable cut = layers::tanh(in.x);
         const Program pruned = in.main.prune(std::vector<std::string>{kept.name()});
         const Program copy = pruned.clone(true);
         Program other;
         Program startup;
         const ProgramGuard programs(other, startup);
         Executor().run(copy, {{"x", rows(2, 4)}}, {cut.name()});
       },
       kProgram,
       {"fetch 'tanh_0.tmp_0'", "prune cut it away", "fix: name it among the targets of prune"}});
  all.push_back(
      {"fetch_from_another_program",
       [](const Inputs& in) {
         const Variable there = layers::tanh(in.x);
         Executor().run(Program(), {}, {there.name()});
       },
       kProgram,
       {"fetch 'tanh_0.tmp_0'", "expected: a variable of the program that runs",
        "got: tanh_0.tmp_0", "or name it among the targets of the save_inference_model"}});
}

void add_value_mistakes(std::vector<Mistake>& all) {
  all.push_back({"label_beyond_the_classes",
                 [](const Inputs& in) {
                   const Variable loss = layers::cross_entropy(in.x, in.label);
                   run(in, {{"x", rows(2, 4)}, {"label", ids({1, 4})}}, {loss.name()});
                 },
                 kFeed,
                 {"cross_entropy", "'Label'", "0 to 3", "4"}});
  all.push_back({"id_beyond_the_table",
                 [](const Inputs& in) {
                   const Variable out = layers::embedding(in.label, {10, 4});
                   run(in, {{"label", ids({1, 10})}}, {out.name()});
                 },
                 kArgument,
                 {"op 'lookup_table', ids 'label', table 'embedding_0.w_0'",
                  "expected: ids in [0, 10)", "got: 10", "fix: enlarge the table"}});
  all.push_back({"weights_of_another_number_of_rows",
                 [](const Inputs& in) {
                   const Variable cost =
                       layers::nce(in.x, in.label, 8, {.sample_weight = in.column});
                   run(in, {{"x", rows(2, 4)}, {"label", ids({1, 2})}, {"column", rows(3, 1)}},
                       {cost.name()});
                 },
                 kShape,
                 {"op 'nce', slot 'SampleWeight' (column)",
                  "expected: float32, 2 elements, one a row of Input", "got: float32[3, 1]"}});
  all.push_back({"index_beyond_what_is_gathered",
                 [](const Inputs& in) {
                   const Variable out = layers::gather(in.x, in.label);
                   run(in, {{"x", rows(2, 4)}, {"label", ids({2})}}, {out.name()});
                 },
                 kFeed,
                 {"gather", "0 to 1", "2"}});
  all.push_back({"sequences_without_structure",
                 [](const Inputs& in) {
                   const Variable out = layers::sequence_pool(in.steps, "sum");
                   run(in, {{"steps", rows(5, 12)}}, {out.name()});
                 },
                 kArgument,
                 {"sequence_pool", "'steps'", "sequence"}});
  all.push_back({"rows_that_only_running_can_compare",
                 [](const Inputs& in) {
                   const Variable out = layers::elementwise_add(in.x, layers::data("other", {4}));
                   run(in, {{"x", rows(2, 4)}, {"other", rows(3, 4)}}, {out.name()});
                 },
                 kShape,
                 {"elementwise_add", "[2, 4]", "[3, 4]"}});
}

}  // namespace

void add_running_mistakes(std::vector<Mistake>& all) {
  add_feed_mistakes(all);
  add_fetch_mistakes(all);
  add_pruned_mistakes(all);
  add_value_mistakes(all);
}

}  // namespace fleet::fluid::mistakes
