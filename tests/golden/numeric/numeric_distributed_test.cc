// Jobs of real trainer and server processes of the original, run again by threads over real
// sockets: losses, parameters as the trainers have them, and what the servers keep.
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/strings.h"
#include "tests/golden/numeric/numeric_case.h"
#include "tests/golden/numeric/numeric_departures.h"
#include "tests/golden/numeric/numeric_nets.h"
#include "tests/testing/async_thread_cluster.h"

namespace fleet::fluid::golden {
namespace {

using fleet::testing::TrainingTask;
using fleet::testing::Values;
using strategies::AsyncMode;
using strategies::AsyncOptions;
using strategies::DelayCompensation;

// Trainers that take turns: trainer 0 step 0, trainer 1 step 0, … A trainer's step is over when it
// asks for its next one, or leaves.
class Turns {
 public:
  explicit Turns(int trainers) : trainers_(trainers) {}
  void begin(int trainer, int step) {
    std::unique_lock lock(mutex_);
    if (step > 0) end_locked();
    changed_.wait(lock, [&] { return turn_ == step * trainers_ + trainer; });
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    end_locked();
  }

 private:
  void end_locked() {
    ++turn_;
    changed_.notify_all();
  }
  const int trainers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = 0;
};

// What a job gives, whatever its mode.
struct Outcome {
  std::vector<std::vector<float>> losses;  // by trainer and step
  std::vector<Values> parameters;          // by trainer
  Values servers;
  std::vector<std::string> errors;
};

class Distributed : public FileCase {
 protected:
  int number(const char* name, int otherwise) const { return json_.value(name, otherwise); }
  // A file without servers holds what a job of as many trainers must come to.
  bool joined() const { return !json_.contains("servers"); }

  NumericNet net() const {
    return build_net(json_["net"].get<std::string>(), json_["settings"],
                     [this](const std::string& name, Tensor& value) {
                       const bool data = name.starts_with("data/");
                       const std::string stored = data ? "trainer0/" + name : name;
                       if (!reader_.contains(stored)) return false;
                       value = tensor(stored);
                       return true;
                     });
  }

  Feed feed(int step, int trainer) const {
    const std::string prefix = str_cat("trainer", trainer, "/");
    const Tensor batches = tensor(prefix + "batch_index");
    const auto batch = static_cast<size_t>(batches.shape()[1]);
    const auto rows = batches.values<int64_t>().subspan(static_cast<size_t>(step) * batch, batch);
    return feed_of(prefix + "data/", rows);
  }

  TrainingTask task_of(const NumericNet& net) const {
    TrainingTask task;
    task.main = &net.main;
    task.startup = &net.startup;
    task.loss = net.loss;
    task.steps = json_["steps"].get<int>();
    task.feed = [this](int step, int begin, int, int) { return feed(step, begin); };
    return task;
  }

  transpiler::DistributeTranspilerConfig transpiler_config() const {
    transpiler::DistributeTranspilerConfig config;
    config.min_block_size = number("min_block_size", 8192);
    return config;
  }

  Outcome run_sync(const NumericNet& net) const {
    fleet::testing::ThreadJob job;
    job.workers = number("trainers", 1);
    job.servers = number("servers", 2);
    job.config = transpiler_config();
    if (json_["mode"] == "fleet_sync") {
      job.config.sync_mode = false;
      job.config.runtime_split_send_recv = job.config.completely_not_async = true;
    }
    // Servers that clip by the global norm meet, and must know where before they listen.
    if (joined()) job.transport = transport::TransportChoice::kUnix;
    auto outcome = train_in_threads(task_of(net), job);
    return {std::move(outcome.losses), std::move(outcome.parameters),
            std::move(outcome.persistables), std::move(outcome.errors)};
  }

  static AsyncOptions options_of(const std::string& mode) {
    AsyncOptions options;
    options.independent_recv = false;
    if (mode == "fleet_half") options.mode = AsyncMode::kHalfAsync;
    if (mode == "dc") options.delay_compensation.form = DelayCompensation::kOriginal;
    if (mode == "fleet_geo") {
      options.mode = AsyncMode::kGeo;
      options.geo_update_frequency = 5;
    }
    return options;
  }

  Outcome run_async(const NumericNet& net, bool original_form) const {
    fleet::testing::AsyncThreadJob job;
    job.workers = number("trainers", 1);
    job.servers = number("servers", 1);
    job.options = options_of(json_["mode"].get<std::string>());
    job.config = transpiler_config();
    job.config.original_schedules = original_form;
    TrainingTask task = task_of(net);
    Turns turns(job.workers);
    if (!json_["turns"].is_null()) {
      task.feed = [this, &turns](int step, int begin, int, int) {
        turns.begin(begin, step);
        return feed(step, begin);
      };
      job.after_steps = [&turns](int) { turns.leave(); };
    }
    auto outcome = train_async_in_threads(task, job);
    return {std::move(outcome.losses), std::move(outcome.parameters),
            std::move(outcome.persistables), std::move(outcome.errors)};
  }

  void expect_values(const Values& values, const std::string& name, const Tensor& expected) const {
    ASSERT_TRUE(values.contains(name)) << name;
    const std::vector<std::byte>& bytes = values.at(name);
    ASSERT_EQ(bytes.size(), expected.bytes()) << name;
    Tensor got(expected.dtype(), expected.shape());
    std::copy(bytes.begin(), bytes.end(), got.raw());
    const double allowed = rtol(json_["tolerance"]["parameters"]);
    EXPECT_EQ(difference(got, expected, allowed), "") << name;
  }

  void expect_losses(const std::vector<float>& losses, const std::string& stored) const {
    const Tensor got = Tensor::from(losses, Shape{static_cast<int64_t>(losses.size())});
    expect_equal(got, stored, rtol(json_["tolerance"]["losses"]));
  }

  void expect_trainers(const Outcome& outcome) const {
    for (size_t i = 0; i < outcome.losses.size(); ++i) {
      const std::string trainer = str_cat("trainer", i);
      const std::string ends = trainer + "/final/";
      expect_losses(outcome.losses[i], trainer + "/losses");
      for (const std::string& name : stored_below(ends)) {
        expect_values(outcome.parameters[i], name, tensor(ends + name));
      }
    }
  }

  // The parts "<name>.block<i>" that servers keep make up the whole, in order. Servers also have
  // what the ops of the learning rate pass on, which is no state.
  void expect_servers(const Outcome& outcome, const NumericNet& net) const {
    std::map<std::string, std::map<int64_t, Tensor>> parts;
    for (int server = 0; server < number("servers", 0); ++server) {
      const std::string prefix = str_cat("server", server, "/final/");
      for (const std::string& name : stored_below(prefix)) {
        const size_t at = name.find(".block");
        const std::string whole = name.substr(0, at);
        const auto index = at == std::string::npos ? 0 : parse_int(name.substr(at + 6)).value();
        const VarDesc* var = net.main.global_block().find_var(whole);
        ASSERT_NE(var, nullptr) << name;
        if (var->persistable) parts[whole][index] = tensor(prefix + name);
      }
    }
    for (const auto& [name, tensors] : parts) {
      std::vector<float> whole;
      for (const auto& [index, part] : tensors) {
        const auto values = part.values<float>();
        whole.insert(whole.end(), values.begin(), values.end());
      }
      const auto count = static_cast<int64_t>(whole.size());
      expect_values(outcome.servers, name, Tensor::from(whole, Shape{count}));
    }
  }

  void expect_joined(const Outcome& outcome) const {
    std::vector<float> means;
    for (size_t step = 0; step < outcome.losses[0].size(); ++step) {
      double sum = 0;
      for (const auto& losses : outcome.losses) sum += static_cast<double>(losses[step]);
      means.push_back(static_cast<float>(sum / static_cast<double>(outcome.losses.size())));
    }
    expect_losses(means, "joined/losses");
    for (const std::string& name : stored_below("joined/final/")) {
      expect_values(outcome.parameters[0], name, tensor("joined/final/" + name));
    }
  }
};

TEST_P(Distributed, EndsWhereTheOriginalDoes) {
  const NumericNet built = net();
  const auto mode = json_["mode"].get<std::string>();
  const std::set<std::string> known = {"sync",
                                       "fleet_sync",
                                       "async",
                                       "dc",
                                       "fleet_half",
                                       "fleet_geo",
                                       "one process on the joined batch"};
  ASSERT_TRUE(known.contains(mode)) << "not a mode that is known: " << mode;
  const bool original_form = find_departure("distributed", json_) != nullptr;
  const bool steps_together = mode == "sync" || mode == "fleet_sync" || joined();
  const Outcome outcome = steps_together ? run_sync(built) : run_async(built, original_form);
  ASSERT_THAT(outcome.errors, ::testing::IsEmpty());
  if (joined()) return expect_joined(outcome);
  expect_trainers(outcome);
  expect_servers(outcome, built);
}

TEST_P(Distributed, DiffersWhereADepartureIsListed) {
  const NumericDeparture* departure = find_departure("distributed", json_);
  if (departure == nullptr) return;  // the other test says that it is equal
  const Outcome outcome = run_async(net(), /*original_form=*/false);
  ASSERT_THAT(outcome.errors, ::testing::IsEmpty());
  const Tensor got = Tensor::from(outcome.losses[0], {json_["steps"].get<int64_t>()});
  EXPECT_NE(difference(got, tensor("trainer0/losses"), rtol(json_["tolerance"]["losses"])), "")
      << "listed as a departure: " << departure->here;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Distributed);
INSTANTIATE_TEST_SUITE_P(Golden, Distributed, ::testing::ValuesIn(cases("distributed")), case_name);

}  // namespace
}  // namespace fleet::fluid::golden
