#include "tests/testing/virtual_time/checkpoint_sim.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "fleet/checkpoints/checkpoint_job.h"
#include "fluid/io/checkpoint_store.h"
#include "strategies/local_strategy.h"
#include "strategies/parameter_server/server/async_parameter_server.h"
#include "strategies/parameter_server/server/server_node.h"
#include "strategies/parameter_server/server/server_steps.h"
#include "strategies/parameter_server/server/sync_parameter_server.h"
#include "strategies/parameter_server/worker/worker_runtime.h"
#include "tests/testing/virtual_time/sim_rank.h"

namespace fleet::testing {
namespace {

using fluid::io::CheckpointReader;
using fluid::io::CheckpointStore;
using strategies::ParameterServerConfig;
using strategies::StrategyRuntime;

constexpr const char* kFolder = "/job/checkpoints";
// Of virtual time, for an attempt: several times what a writer waits for parts.
constexpr Duration kPatience = std::chrono::hours(2);
constexpr uint64_t kLongestStep = 200'000;       // ns
constexpr uint64_t kLongestNotice = 20'000'000;  // ns, until the launcher ends the others

ParameterServerConfig config_of(const CheckpointPrograms& programs, int index,
                                const std::string& job_id) {
  ParameterServerConfig config;
  config.index = static_cast<uint32_t>(index);
  config.worker_num = static_cast<uint32_t>(programs.workers());
  for (const std::string& name : programs.server_names()) {
    config.servers.push_back(Endpoint::parse(name, "server").value());
  }
  config.job_id = job_id;
  config.secret = transport::Secret::of_text("a secret of the simulation", "test");
  config.update_threads = 0;
  config.save_folders = {kFolder};
  return config;
}

// A server's process: what listen_and_serv has, and its values.
class Server {
 public:
  Server(SimProcess& process, const CheckpointPrograms& programs, int index,
         const std::string& job_id, uint64_t incarnation)
      : programs_(programs.server(index)) {
    executor_.run(programs_.startup);
    const auto& ops = programs_.main.global_block().ops();
    const fluid::Operator& listen = *ops.back();
    const strategies::AsyncOptions options = programs.options();
    steps_.emplace(
        programs_.main,
        fluid::read_server_program(programs_.main, listen, options.mode, programs.workers()),
        executor_.scope());
    const ParameterServerConfig config = config_of(programs, index, job_id);
    const Logger quiet(LogLevel::kOff);
    const auto make =
        [&](strategies::ServingEvents events) -> std::unique_ptr<strategies::ServerLanes> {
      events.files = &process.files();
      events.make_background = [&process] { return process.make_background(); };
      if (programs.mode() == SimMode::kSync) {
        return std::make_unique<strategies::SyncParameterServer>(config, steps_->make_model(),
                                                                 std::move(events), quiet);
      }
      return std::make_unique<strategies::AsyncParameterServer>(config, steps_->make_model(),
                                                                std::move(events), quiet);
    };
    node_.emplace(process.node(incarnation), config, make, quiet);
    node_->start().throw_if_error();
  }

  const strategies::ServerNode& node() const { return *node_; }
  const fluid::Scope& scope() { return executor_.scope(); }

 private:
  const transpiler::ProgramPair programs_;
  fluid::Executor executor_;
  std::optional<strategies::ServerSteps> steps_;
  std::optional<strategies::ServerNode> node_;
};

struct Member {
  std::unique_ptr<SimProcess> process;
  std::unique_ptr<Server> server;  // else a worker
  bool is_over = false;            // of a worker
  std::string failure;
};

class SimRun {
 public:
  SimRun(const CheckpointPrograms& programs, const CheckpointSim& sim)
      : programs_(programs),
        sim_(sim),
        world_(mix64(sim.seed)),
        disk_([this](uint64_t below) { return world_.random(below); }),
        store_(kFolder, disk_),
        launcher_(world_.add_loop("launcher")) {}

  CheckpointSimOutcome run() {
    disk_.set_room(sim_.room);
    const auto most = sim_.crashes.size() + 1;
    while (!finished_ && outcome_.ok()) {
      if (outcome_.points.size() > most) fail("the job does not come to its end");
      attempt();
    }
    outcome_.trace_hash = world_.trace_hash();
    return std::move(outcome_);
  }

 private:
  void fail(const std::string& what) {
    if (outcome_.ok()) outcome_.failure = str_cat("attempt ", attempt_, ": ", what);
  }

  // ---- one attempt

  void attempt() {
    attempt_ = static_cast<int>(outcome_.points.size());
    job_id_ = str_cat("attempt-", attempt_);
    crashed_ = ending_ = false;
    loaded_.assign(static_cast<size_t>(programs_.workers()), std::nullopt);
    finals_.assign(static_cast<size_t>(programs_.workers()), {});
    first_loop_ = launcher_.index() + 1 + loops_;
    for (int i = 0; i < programs_.servers(); ++i) add(str_cat("server ", i));
    for (int i = 0; i < programs_.workers(); ++i) add(str_cat("worker ", i));
    const TimePoint end = world_.now() + kPatience;
    begin();
    const bool over = world_.run_until([this] { return turn(); }, end);
    if (!over) fail("it hangs");
    finish();
  }

  void add(const std::string& name) {
    Member& member = members_.emplace_back();
    member.process = std::make_unique<SimProcess>(
        world_, disk_, name, [this, name](uint64_t point) { return is_last(name, point); });
    member.process->set_slowness(sim_.disk_slowness);
    ++loops_;
  }

  void begin() {
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      const bool serves = static_cast<int>(i) < programs_.servers();
      const int index = static_cast<int>(i) - (serves ? 0 : programs_.servers());
      member.process->start([this, &member, serves, index] {
        try {
          if (serves) {
            member.server = std::make_unique<Server>(*member.process, programs_, index, job_id_,
                                                     incarnation_of(*member.process));
          } else {
            work(*member.process, index);
            member.is_over = true;
          }
        } catch (const std::exception& error) {
          member.failure = error.what();
        }
      });
      member.process->run_ready();
    }
  }

  // Between two events: the process that the last one was of goes on. Whether the attempt is over.
  bool turn() {
    const transport::SimLoop* const loop = world_.last_loop();
    if (loop != nullptr && loop->index() >= first_loop_) {
      Member& member = members_[loop->index() - first_loop_];
      member.process->run_ready();
      look_at(member);
    }
    return std::all_of(members_.begin(), members_.end(), [](const Member& member) {
      return !member.process->alive() || member.is_over ||
             (member.server != nullptr && member.server->node().finished());
    });
  }

  // The launcher ends all when one is gone.
  void look_at(Member& member) {
    if (member.server != nullptr && member.failure.empty()) {
      const Status& status = member.server->node().status();
      if (!status.ok()) member.failure = status.to_string();
    }
    if ((member.process->alive() && member.failure.empty()) || std::exchange(ending_, true)) {
      return;
    }
    if (!crashed_) fail(str_cat(member.process->name(), " fails: ", member.failure));
    const Duration notice(static_cast<int64_t>(world_.random(kLongestNotice)));
    launcher_.call_after(notice, [this, attempt = attempt_] {
      if (attempt == attempt_) kill_all();
    });
  }

  void kill_all() {
    for (Member& member : members_) member.process->kill();
  }

  bool is_last(const std::string& name, uint64_t point) {
    for (const SimCrash& crash : sim_.crashes) {
      if (crash.attempt != attempt_ || crash.process != name || crash.point != point) continue;
      crashed_ = true;
      if (crash.power) {
        power_lost_ = true;
        kill_all();
      }
      return true;
    }
    return false;
  }

  uint64_t incarnation_of(const SimProcess& process) const {
    return mix64(sim_.seed * 1000 + process.loop().index());
  }

  // ---- a worker

  std::shared_ptr<StrategyRuntime> make_runtime(SimProcess& process, int index,
                                                const role_maker::ClusterSpec& cluster) {
    const uint64_t incarnation = incarnation_of(process);
    if (programs_.mode() == SimMode::kLocal) {
      const strategies::RuntimeConfig none;
      return strategies::LocalStrategy{.logical_shards = CheckpointPrograms::kShards}
          .make()
          ->rewrite({programs_.origin(), programs_.origin(), cluster, none, Logger()})
          .runtime;
    }
    if (programs_.is_collective()) {
      strategies::CollectiveRuntimeOptions options{.logical_shards = CheckpointPrograms::kShards};
      if (programs_.workers_differ()) options.local_sgd = {.interval = 3};
      return std::make_shared<SimRank>(process, cluster, incarnation, std::move(options),
                                       programs_.origin(), programs_.worker(index).main);
    }
    return std::make_shared<strategies::WorkerRuntime>(
        cluster.index,
        strategies::make_exchange(config_of(programs_, index, job_id_), programs_.options(),
                                  process.worker_loops(incarnation), Logger(LogLevel::kOff)),
        programs_.origin(), programs_.server_names());
  }

  CheckpointJob::Surroundings surroundings_of(SimProcess& process) {
    return {.files = &process.files(),
            .clock = &process.loop(),
            .make_background = [&process] { return process.make_background(); },
            .random = [this] { return static_cast<uint32_t>(world_.random(UINT32_MAX)); }};
  }

  int64_t steps_of(int worker) const {
    return sim_.steps + (worker + 1 == programs_.workers() ? sim_.longer : 0);
  }

  void work(SimProcess& process, int index) {
    const role_maker::ClusterSpec cluster = programs_.cluster(index, job_id_);
    const auto runtime = make_runtime(process, index, cluster);
    fluid::Program main = programs_.worker(index).main;
    fluid::Program startup = programs_.worker(index).startup;
    main.set_runtime(runtime);
    startup.set_runtime(runtime);
    fluid::Executor executor;
    runtime->init_worker();
    executor.run(startup);
    CheckpointJob checkpoints({.cluster = cluster,
                               .runtime = *runtime,
                               .origin = programs_.origin(),
                               .main = main,
                               .strategy = "simulated",
                               .logger = logger_of(process),
                               .stop_worker = [&runtime] { runtime->stop_worker(); },
                               .surroundings = surroundings_of(process)});
    const std::chrono::duration<double> every = sim_.every;
    const TrainStatus status = checkpoints.resume(executor,
                                                  {.folder = kFolder,
                                                   .every_steps = sim_.every_steps,
                                                   .every_seconds = every.count(),
                                                   .on_signals = false,
                                                   .keep = sim_.keep},
                                                  "latest");
    if (!process.alive()) return;  // what it has read counts no more
    check_loaded(index, status.step, *runtime, executor.scope());
    for (int64_t step = status.step; step < steps_of(index); ++step) {
      process.sleep(Duration(static_cast<int64_t>(world_.random(kLongestStep))));
      executor.run(main,
                   is_finite(step + 1) ? programs_.feed(index, step) : programs_.broken_feed());
    }
    if (in_step(programs_.mode()) && is_finite(sim_.steps)) {
      check_state(*runtime, sim_.steps, index, executor.scope());
    }
    checkpoints.stop();
    runtime->stop_worker();
    finals_[static_cast<size_t>(index)] = programs_.counts_of(executor.scope());
  }

  // After so many steps.
  bool is_finite(int64_t steps) const { return sim_.nan_from == 0 || steps < sim_.nan_from; }

  // Everything that the job has, as the first worker reads it. All workers call it.
  std::optional<SimState> whole_state(StrategyRuntime& runtime, int index, fluid::Scope& scope) {
    runtime.barrier_worker();
    fluid::Scope gathered(&scope);
    std::optional<SimState> state;
    if (index == 0) {
      std::vector<std::string> names;
      for (const fluid::VarDesc* var : programs_.origin().global_block().vars()) {
        if (var->persistable) names.push_back(var->name);
      }
      runtime.read_values(names, gathered);
      state = state_of(programs_.origin(), gathered);
    }
    runtime.barrier_worker();
    return state;
  }

  void check_state(StrategyRuntime& runtime, int64_t steps, int index, fluid::Scope& scope) {
    const auto state = whole_state(runtime, index, scope);
    if (!state || *state == programs_.state(steps)) return;
    for (const auto& [name, bytes] : programs_.state(steps)) {
      const auto found = state->find(name);
      if (found != state->end() && found->second == bytes) continue;
      return fail(str_cat(name, " has other bits than an undisturbed run after ", steps, " steps"));
    }
  }

  void check_loaded(int index, int64_t step, StrategyRuntime& runtime, fluid::Scope& scope) {
    loaded_[static_cast<size_t>(index)] = step;
    std::vector<double> all(loaded_.size());
    all[static_cast<size_t>(index)] = static_cast<double>(step);
    all = runtime.all_reduce_worker(all);
    const std::vector<int64_t> steps(all.begin(), all.end());
    const int64_t newest = *std::max_element(steps.begin(), steps.end());
    if (newest < saved_) {
      fail(str_cat("step ", saved_, " was saved, and the job goes on from step ", newest));
    }
    if (index == 0 && newest > 0) ++outcome_.resumes;
    if (in_step(programs_.mode())) return check_state(runtime, newest, index, scope);
    const std::vector<double> counts = whole_counts(runtime, index, scope);
    if (some_have_stopped(steps)) return;
    const std::string wrong = programs_.wrong_counts(counts, steps);
    if (!wrong.empty()) fail(wrong);
  }

  // A worker of EASGD that stops takes its own values with it: what is saved later lacks them.
  bool some_have_stopped(const std::vector<int64_t>& steps) {
    lacks_values_ = false;
    for (int worker = 0; worker < programs_.workers(); ++worker) {
      lacks_values_ = lacks_values_ || steps[static_cast<size_t>(worker)] >= steps_of(worker);
    }
    lacks_values_ = lacks_values_ && programs_.mode() == SimMode::kEasgd;
    return lacks_values_;
  }

  // What servers have, with what workers have that is not the same.
  std::vector<double> whole_counts(StrategyRuntime& runtime, int index, fluid::Scope& scope) {
    fluid::Scope gathered;
    if (programs_.has_servers() && index == 0) {
      runtime.read_values(programs_.count_names(), gathered);
    }
    std::vector<double> counts = programs_.counts_of(gathered);
    if (programs_.workers_differ()) add(programs_.counts_of(scope), counts);
    return runtime.all_reduce_worker(counts);
  }

  static void add(const std::vector<double>& more, std::vector<double>& counts) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += more[i];
  }

  Logger logger_of(SimProcess& process) {
    return Logger(LogLevel::kInfo, [this, &process](LogLevel, std::string_view line) {
      if (process.alive()) hear(line);
    });
  }

  void hear(std::string_view line) {
    constexpr std::string_view kSaved = " saved step=";
    if (const size_t at = line.find(kSaved); at != std::string_view::npos) {
      ++outcome_.saves;
      const int64_t step = std::stoll(std::string(line.substr(at + kSaved.size())));
      if (is_finite(step)) saved_ = std::max(saved_, step);
      damaged_.erase(step);
    }
    if (line.find(" not saved; ") != std::string_view::npos) ++outcome_.failed_saves;
    if (line.find(" cannot be used; ") != std::string_view::npos) flip_said_ = true;
  }

  // ---- between attempts

  void finish() {
    auto& points = outcome_.points.emplace_back();
    bool loaded = true;
    for (const auto& step : loaded_) loaded = loaded && step.has_value();
    if (!loaded) ++outcome_.early_crashes;
    if (loaded && flipped_ && !flip_said_) fail("a damaged checkpoint was not said");
    if (loaded && flipped_) ++outcome_.flips_said;
    finished_ = !ending_ && !crashed_;
    if (finished_ && outcome_.ok()) check_servers();
    for (Member& member : members_) {
      points[member.process->name()] = member.process->points();
      member.process->kill();
    }
    for (Member& member : members_) {
      member.server.reset();
      member.process.reset();
    }
    members_.clear();
    if (std::exchange(power_lost_, false)) disk_.lose_power();
    // One that was not said to be saved may be lost then.
    if (flipped_ && !disk_.exists(store_.folder_of(*flipped_))) flipped_.reset();
    disk_.set_room(UINT64_MAX);
    check_disk();
    if (loaded) flipped_.reset();
    flip_said_ = false;
    if (!finished_ && sim_.flips && !flipped_) flip();
  }

  // Jobs that are not in step: what all workers have sent is in the servers' values at the end.
  void check_servers() {
    if (in_step(programs_.mode()) || lacks_values_) return;
    std::vector<double> counts = programs_.counts_of(fluid::Scope());
    for (const Member& member : members_) {
      if (member.server != nullptr) add(programs_.counts_of(member.server->scope()), counts);
    }
    if (programs_.workers_differ()) {
      for (const auto& own : finals_) add(own, counts);
    }
    std::vector<int64_t> steps;
    steps.reserve(static_cast<size_t>(programs_.workers()));
    for (int worker = 0; worker < programs_.workers(); ++worker) steps.push_back(steps_of(worker));
    const std::string wrong = programs_.wrong_counts(counts, steps);
    if (!wrong.empty()) fail(str_cat("at the end, ", wrong));
  }

  void check_disk() {
    const auto stored = store_.list();
    for (const auto& checkpoint : stored) {
      if (damaged_.contains(checkpoint.step)) continue;
      for (const Status& damage : CheckpointReader::find_damage(checkpoint.folder, disk_)) {
        fail(str_cat(checkpoint.folder.string(), " is not whole: ", damage.to_string()));
      }
    }
    int64_t newest = 0;
    for (const auto& checkpoint : stored) {
      if (is_finite(checkpoint.step)) newest = std::max(newest, checkpoint.step);
    }
    if (newest < saved_) fail(str_cat("step ", saved_, " was saved, and the newest is ", newest));
    // A crash comes between a new one and the end of an old one.
    if (finished_ && stored.size() > static_cast<size_t>(sim_.keep) + 1 + sim_.crashes.size()) {
      fail(str_cat(stored.size(), " checkpoints stay"));
    }
  }

  void flip() {
    const auto stored = store_.list();
    if (stored.size() < 2) return;
    if (damaged_.contains(stored[0].step) || damaged_.contains(stored[1].step)) return;
    auto files = disk_.names_in(stored[0].folder);
    // Nobody looks into what a writer left behind.
    std::erase_if(files, [](const auto& file) {
      return file.extension() != ".safetensors" &&
             file.filename() != fluid::io::kCheckpointManifest;
    });
    const auto& file = files[static_cast<size_t>(world_.random(files.size()))];
    disk_.flip_bit(file, world_.random(UINT32_MAX));
    flipped_ = stored[0].step;
    damaged_.insert(stored[0].step);
    saved_ = std::min(saved_, stored[1].step);
    ++outcome_.flips;
  }

  const CheckpointPrograms& programs_;
  const CheckpointSim& sim_;
  transport::SimWorld world_;
  SimDisk disk_;
  const CheckpointStore store_;
  transport::SimLoop& launcher_;
  uint32_t loops_ = 0;       // of processes so far
  uint32_t first_loop_ = 0;  // of this attempt's
  std::vector<Member> members_;
  std::string job_id_;
  int attempt_ = 0;
  bool crashed_ = false;  // somebody was killed
  bool ending_ = false;   // the launcher ends the attempt
  bool power_lost_ = false;
  bool finished_ = false;
  int64_t saved_ = 0;  // the newest that was said to be, and is not damaged
  std::vector<std::optional<int64_t>> loaded_;  // by worker, of this attempt
  std::vector<std::vector<double>> finals_;     // counts that workers end with
  bool lacks_values_ = false;
  std::set<int64_t> damaged_;       // steps of checkpoints that were
  std::optional<int64_t> flipped_;  // of them, that nobody has looked at
  bool flip_said_ = false;
  CheckpointSimOutcome outcome_;
};

}  // namespace

std::string SimCrash::to_string() const {
  return str_cat(process, " at point ", point, " of attempt ", attempt, power ? ", power" : "");
}

std::string CheckpointSim::to_string() const {
  std::vector<std::string> killed;
  for (const SimCrash& crash : crashes) killed.push_back(crash.to_string());
  return str_cat("seed ", seed, ", ", steps, "+", longer, " steps, every ", every_steps, ", keep ",
                 keep, ", time ", every.count(), " ns, broken from ", nan_from, ", slow ",
                 disk_slowness.count(), " ns, room ", room, flips ? ", flips" : "",
                 "; killed: ", join(killed, "; "));
}

CheckpointSimOutcome run_checkpoint_sim(const CheckpointPrograms& programs,
                                        const CheckpointSim& sim) {
  SimRun run(programs, sim);
  return run.run();
}

}  // namespace fleet::testing
