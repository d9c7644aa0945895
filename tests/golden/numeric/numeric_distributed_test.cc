// Jobs of real trainer and server processes of Paddle, run again by threads over real
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
using fluid::ServerMode;
using strategies::AsyncOptions;
using strategies::DelayCompensation;
using strategies::DelayCompensationOptions;

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

  // The forms that this case's departures ask for, but for one that may be left out.
  using Departures = std::vector<const NumericDeparture*>;

  NumericNet net(const Departures& departures) const {
    const NetForms forms{.paddle_adam = asks(departures, "paddle_form"),
                         .decay = asks(departures, "DecayForm::kPaddle")
                                      ? layers::DecayForm::kPaddle
                                      : layers::DecayForm::kExact};
    return build_net(
        json_["net"].get<std::string>(), json_["settings"],
        [this](const std::string& name, Tensor& value) {
          const bool data = name.starts_with("data/");
          const std::string stored = data ? "trainer0/" + name : name;
          if (!reader_.contains(stored)) return false;
          value = tensor(stored);
          return true;
        },
        forms);
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

  transpiler::DistributeTranspilerConfig transpiler_config(const Departures& departures) const {
    transpiler::DistributeTranspilerConfig config;
    config.min_block_size = number("min_block_size", 8192);
    config.paddle_schedules = asks(departures, "paddle_schedules");
    config.server_statistics = !asks(departures, "server_statistics = false");
    return config;
  }

  // Tables that stay on the servers, as the trainer would look them up: the file may have them.
  template <class Runtime>
  void pull_tables(const NumericNet& net, Runtime& runtime, Executor& executor) const {
    std::vector<std::string> tables;
    for (const auto& op : net.main.global_block().ops()) {
      if (op->type == "lookup_table") tables.push_back(op->input("W").front());
    }
    runtime.pull(tables, executor.scope());
  }

  Outcome run_sync(const NumericNet& net, const Departures& departures) const {
    fleet::testing::ThreadJob job;
    job.workers = number("trainers", 1);
    job.servers = number("servers", 2);
    job.config = transpiler_config(departures);
    if (json_["mode"] == "fleet_sync") {
      job.config.sync_mode = false;
      job.config.runtime_split_send_recv = job.config.completely_not_async = true;
    }
    job.after_steps = [&](int, auto& runtime, Executor& executor) {
      pull_tables(net, runtime, executor);
    };
    // Servers that clip by the global norm meet, and must know where before they listen.
    if (joined()) job.transport = transport::TransportChoice::kUnix;
    auto outcome = train_in_threads(task_of(net), job);
    return {std::move(outcome.losses), std::move(outcome.parameters),
            std::move(outcome.persistables), std::move(outcome.errors)};
  }

  static AsyncOptions options_of(const std::string& mode, const Departures& departures) {
    AsyncOptions options;
    options.independent_recv = false;
    if (mode == "fleet_half") options.mode = ServerMode::kHalfAsync;
    if (mode == "dc") {
      options.delay_compensation = DelayCompensationOptions::preset(
          asks(departures, "dc_asgd_form = paddle") ? DelayCompensation::kPaddle
                                                    : DelayCompensation::kClipped);
    }
    if (mode == "fleet_geo") {
      options.mode = ServerMode::kGeo;
      options.geo_update_frequency = 5;
    }
    return options;
  }

  Outcome run_async(const NumericNet& net, const Departures& departures) const {
    fleet::testing::AsyncThreadJob job;
    job.workers = number("trainers", 1);
    job.servers = number("servers", 1);
    job.options = options_of(json_["mode"].get<std::string>(), departures);
    job.config = transpiler_config(departures);
    TrainingTask task = task_of(net);
    Turns turns(job.workers);
    const bool in_turns = !json_["turns"].is_null();
    if (in_turns) {
      task.feed = [this, &turns](int step, int begin, int, int) {
        turns.begin(begin, step);
        return feed(step, begin);
      };
    }
    job.after_steps = [&](int, auto& runtime, Executor& executor) {
      if (job.options.mode != ServerMode::kGeo) pull_tables(net, runtime, executor);
      if (in_turns) turns.leave();
    };
    auto outcome = train_async_in_threads(task, job);
    return {std::move(outcome.losses), std::move(outcome.parameters),
            std::move(outcome.persistables), std::move(outcome.errors)};
  }

  Outcome run(const NumericNet& net, const Departures& departures) const {
    const auto mode = json_["mode"].get<std::string>();
    const bool steps_together = mode == "sync" || mode == "fleet_sync" || joined();
    return steps_together ? run_sync(net, departures) : run_async(net, departures);
  }

  void compare(const Tensor& got, const std::string& stored, const Tensor& expected,
               const char* tolerance, std::vector<std::string>& differences) const {
    const std::string differs = difference(got, expected, rtol(json_["tolerance"][tolerance]));
    if (!differs.empty()) differences.push_back(stored + " " + differs);
  }

  void compare_value(const Values& values, const std::string& name, const Tensor& expected,
                     std::vector<std::string>& differences) const {
    const auto found = values.find(name);
    if (found == values.end() || found->second.size() != expected.bytes()) {
      differences.push_back(name + (found == values.end() ? " is missing" : " has another size"));
      return;
    }
    Tensor got(expected.dtype(), expected.shape());
    std::copy(found->second.begin(), found->second.end(), got.raw());
    compare(got, name, expected, "parameters", differences);
  }

  void compare_losses(const std::vector<float>& losses, const std::string& stored,
                      std::vector<std::string>& differences) const {
    const Tensor got = Tensor::from(losses, Shape{static_cast<int64_t>(losses.size())});
    compare(got, stored, tensor(stored), "losses", differences);
  }

  void compare_trainers(const Outcome& outcome, std::vector<std::string>& differences) const {
    for (size_t i = 0; i < outcome.losses.size(); ++i) {
      const std::string trainer = str_cat("trainer", i);
      const std::string ends = trainer + "/final/";
      compare_losses(outcome.losses[i], trainer + "/losses", differences);
      for (const std::string& name : stored_below(ends)) {
        compare_value(outcome.parameters[i], name, tensor(ends + name), differences);
      }
    }
  }

  // Which slice of its variable a server's tensor is: its own name says so, or, of states, that of
  // the parameter whose name theirs begins with.
  static int64_t slice_of(const std::string& name, const std::vector<std::string>& of_server) {
    for (const std::string& other : of_server) {
      const size_t at = other.find(".block");
      const bool own = other == name || name.starts_with(other.substr(0, at) + "_");
      if (at != std::string::npos && own) return parse_int(other.substr(at + 6)).value();
    }
    return 0;
  }

  // The parts "<name>.block<i>" that servers keep make up the whole, in order. Servers also have
  // what the ops of the learning rate pass on, which is no state, and count steps of their own.
  void compare_servers(const Outcome& outcome, const NumericNet& net,
                       std::vector<std::string>& differences) const {
    std::map<std::string, std::map<int64_t, Tensor>> parts;
    for (int server = 0; server < number("servers", 0); ++server) {
      const std::string prefix = str_cat("server", server, "/final/");
      const auto names = stored_below(prefix);
      for (const std::string& name : names) {
        const std::string whole = name.substr(0, name.find(".block"));
        if (whole.starts_with("@LR_DECAY_COUNTER@")) continue;
        const VarDesc* var = net.main.global_block().find_var(whole);
        const bool made_by_servers = var == nullptr && whole.starts_with("_generated_var_");
        if (var == nullptr && !made_by_servers) differences.push_back(name + " is not known");
        if (var != nullptr && var->persistable) {
          parts[whole][slice_of(name, names)] = tensor(prefix + name);
        }
      }
    }
    for (const auto& [name, tensors] : parts) {
      std::vector<float> whole;
      for (const auto& [index, part] : tensors) {
        const auto values = part.values<float>();
        whole.insert(whole.end(), values.begin(), values.end());
      }
      // Each slice of a parameter has its own powers of beta; they are equal.
      const VarDesc* var = net.main.global_block().find_var(name);
      if (var->shape.numel() == 1) whole.resize(1);
      const auto count = static_cast<int64_t>(whole.size());
      compare_value(outcome.servers, name, Tensor::from(whole, Shape{count}), differences);
    }
  }

  void compare_joined(const Outcome& outcome, std::vector<std::string>& differences) const {
    std::vector<float> means;
    for (size_t step = 0; step < outcome.losses[0].size(); ++step) {
      double sum = 0;
      for (const auto& losses : outcome.losses) sum += static_cast<double>(losses[step]);
      means.push_back(static_cast<float>(sum / static_cast<double>(outcome.losses.size())));
    }
    compare_losses(means, "joined/losses", differences);
    for (const std::string& name : stored_below("joined/final/")) {
      compare_value(outcome.parameters[0], name, tensor("joined/final/" + name), differences);
    }
  }

  // What differs from the file when the job runs in these of Paddle's forms.
  std::vector<std::string> differences(const Departures& departures) const {
    const NumericNet built = net(departures);
    const Outcome outcome = run(built, departures);
    EXPECT_THAT(outcome.errors, ::testing::IsEmpty());
    std::vector<std::string> found;
    if (joined()) {
      compare_joined(outcome, found);
    } else {
      compare_trainers(outcome, found);
      compare_servers(outcome, built, found);
    }
    return found;
  }
};

TEST_P(Distributed, InPaddlesFormEndsWhereItDoes) {
  const auto mode = json_["mode"].get<std::string>();
  const std::set<std::string> known = {"sync",
                                       "fleet_sync",
                                       "async",
                                       "dc",
                                       "fleet_half",
                                       "fleet_geo",
                                       "one process on the joined batch"};
  ASSERT_TRUE(known.contains(mode)) << "not a mode that is known: " << mode;
  EXPECT_EQ(join(differences(find_departures("distributed", json_)), "\n"), "");
}

TEST_P(Distributed, DiffersWhereADepartureIsListed) {
  const Departures all = find_departures("distributed", json_);
  const Tensors tensors = [this](const std::string& name) { return tensor(name); };
  for (const NumericDeparture* departure : all) {
    if (!departure->differs || !departure->differs(json_, tensors)) continue;
    Departures others = all;
    std::erase(others, departure);
    EXPECT_THAT(differences(others), ::testing::Not(::testing::IsEmpty()))
        << "listed as a departure: " << departure->subject << ", " << departure->here;
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Distributed);
INSTANTIATE_TEST_SUITE_P(Golden, Distributed, ::testing::ValuesIn(cases("distributed")), case_name);

}  // namespace
}  // namespace fleet::fluid::golden
