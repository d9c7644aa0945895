#include "tools/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/program/live_blocks.h"
#include "tools/explain/op_places.h"
#include "tools/explain/placement.h"
#include "tools/explain/provenance.h"
#include "tools/explain/unknown_ops.h"
#include "tools/explain/wording.h"
#include "transpiler/distribute_transpiler.h"
#include "transpiler/training_ops.h"

namespace fleet::explain {
namespace {

using fluid::Operator;
using fluid::Program;
using transpiler::DistributeTranspiler;
using transpiler::DistributeTranspilerConfig;

constexpr int kFirstPort = 6174;

struct Mode {
  std::string_view name;
  std::string_view title;
  std::string_view sentence;
};

constexpr Mode kModes[] = {
    {"sync", "synchronous parameter servers",
     "Every step, servers add up the gradients of all shards, divide, update, and every trainer "
     "goes on with the new values."},
    {"sync_split", "synchronous parameter servers, cut at run time",
     "As synchronous training; send and recv name whole variables, and the runtime cuts them."},
    {"async", "asynchronous parameter servers",
     "Trainers do not wait for each other: servers apply each gradient when it comes."},
    {"half_async", "half-asynchronous parameter servers",
     "The threads of a trainer meet and send one merged gradient; trainers do not wait for each "
     "other."},
    {"geo", "GEO parameter servers",
     "Trainers train alone, and every few steps exchange what their parameters changed by."},
    {"dc_asgd", "asynchronous parameter servers with delay compensation",
     "Servers apply each gradient when it comes, corrected for what changed since it was begun."},
    {"all_reduce", "collective all-reduce",
     "No servers: ranks sum each gradient among themselves, and each updates its own copy."},
    {"local_sgd", "collective LocalSGD",
     "No servers: ranks train alone, and now and then average their parameters."},
    {"nccl2", "collective, reduced by the executor",
     "No servers: the main program is the local one, and its executor sums the gradients."},
};

std::string_view mode_of(const DistributeTranspilerConfig& config) {
  if (config.mode == "nccl2") return "nccl2";
  if (config.mode == "collective") {
    return config.collective_mode == "local_sgd" ? "local_sgd" : "all_reduce";
  }
  const fluid::ServerMode mode = server_mode(config);
  if (is_synchronous(mode)) return config.runtime_split_send_recv ? "sync_split" : "sync";
  return config.enable_dc_asgd ? "dc_asgd" : to_string(mode);
}

const Mode& describe(std::string_view name) {
  return *std::find_if(std::begin(kModes), std::end(kModes),
                       [name](const Mode& mode) { return mode.name == name; });
}

// "37 and 63"; of many servers "9 to 40".
std::string shares_of(const Explanation& explanation) {
  constexpr size_t kFew = 4;
  std::vector<int> shares;
  for (const ServerLoad& server : explanation.servers) {
    shares.push_back(static_cast<int>(std::lround(100 * server.share)));
  }
  if (shares.size() <= kFew) return join(shares, " and ");
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  return str_cat(*least, " to ", *most);
}

// Those that differ from the defaults.
std::vector<std::pair<std::string, std::string>> changed_options(
    const DistributeTranspilerConfig& config) {
  const auto given = fluid::to_attributes(config);
  const auto defaults = fluid::to_attributes(DistributeTranspilerConfig());
  std::vector<std::pair<std::string, std::string>> changed;
  for (const auto& [name, value] : given) {
    if (value != defaults.at(name)) changed.emplace_back(name, fluid::to_string(value));
  }
  return changed;
}

// Finds the op of the local program that an op of a server's is a copy of.
class LocalOps {
 public:
  // Of a startup program every op may move, of a main program updates and schedules.
  LocalOps(const Program& local, bool startup) {
    const auto& ops = local.global_block().ops();
    for (size_t i = 0; i < ops.size(); ++i) {
      const bool moves =
          transpiler::is_update_role(*ops[i]) || transpiler::is_schedule_role(*ops[i]);
      if (startup || moves) by_key_[key_of(*ops[i], {})].push_back(i);
    }
  }

  // `origins`: names of the local program by name on the server. Of several ops of one form the
  // n-th of a block is taken for the n-th of the local program.
  std::optional<size_t> find(const Operator& op, const std::map<std::string, std::string>& origins,
                             std::map<std::string, size_t>& seen) const {
    const std::string key = key_of(op, origins);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return std::nullopt;
    const size_t number = seen[key]++;
    if (number >= found->second.size()) return std::nullopt;
    return found->second[number];
  }

 private:
  // Update ops are known by their parameter, all others by what they make.
  static std::string key_of(const Operator& op, const std::map<std::string, std::string>& origins) {
    if (transpiler::is_update_role(op) && !op.role_var.empty()) {
      return str_cat(op.type, " of ", op.role_var.front());
    }
    const auto outputs = op.output_names();
    if (outputs.empty()) return op.type;
    const auto origin = origins.find(outputs.front());
    return str_cat(op.type, " ", origin == origins.end() ? outputs.front() : origin->second);
  }

  std::map<std::string, std::vector<size_t>> by_key_;
};

// What a server calls a slice of a variable -> the variable.
std::map<std::string, std::string> origins_of(const Program& program) {
  std::map<std::string, std::string> origins;
  for (const fluid::DistributedVar& row : program.distribution().vars) {
    if (row.endpoint == program.distribution().ps_endpoint) origins[row.slice] = row.origin;
  }
  for (const fluid::VarDesc* var : program.global_block().vars()) {
    if (var->slice) origins[var->name] = var->slice->origin;
  }
  return origins;
}

ExplainedOp explain_op(const Operator& op, const OpStory& story, const Wording& wording) {
  ExplainedOp explained{.type = op.type,
                        .role = fluid::to_string(op.role),
                        .label = wording.label(op),
                        .text = op.to_string(),
                        .origin = story.origin,
                        .local = story.local,
                        .pass = story.pass};
  explained.why = wording.why(op, story);
  return explained;
}

// `moved_from`: the program whose ops run here instead; null for a trainer's.
ExplainedProgram explain_program(std::string process, Program program, const ProgramStory& story,
                                 const Wording& wording, const LocalOps* moved_from) {
  ExplainedProgram explained{.process = std::move(process), .program = std::move(program)};
  const auto origins =
      moved_from == nullptr ? std::map<std::string, std::string>() : origins_of(explained.program);
  for (const int32_t index : fluid::live_blocks(explained.program)) {
    std::map<std::string, size_t> seen;
    const auto& ops = explained.program.block(index).ops();
    for (size_t i = 0; i < ops.size(); ++i) {
      OpStory now;
      if (!story.empty()) now = story[static_cast<size_t>(index)][i];
      if (moved_from != nullptr) {
        if (const auto local = moved_from->find(*ops[i], origins, seen)) {
          now.origin = Origin::kMoved;
          now.local = static_cast<int>(*local);
        }
      }
      ExplainedOp op = explain_op(*ops[i], now, wording);
      op.block = index;
      op.position = i;
      explained.ops.push_back(std::move(op));
    }
  }
  return explained;
}

class Explainer {
 public:
  Explainer(const Program& main, const Program& startup, const ExplainOptions& options)
      : main_(main),
        startup_(startup),
        options_(options),
        with_servers_(options.config.mode == "pserver"),
        endpoints_(endpoints()),
        history_(main, startup),
        wording_(with_servers_ ? endpoints_ : std::vector<std::string>(), shards(),
                 options.trainers),
        transpiler_(options.config) {}

  Explanation run() {
    describe_job();
    transpile();
    explain_given();
    explain_trainer();
    if (with_servers_) {
      place(transpiler_.plan(), main_, out_);
      explain_servers();
      out_.warnings = find_warnings(transpiler_.plan(), options_, out_);
      propose_balance();
    } else {
      count_collective_traffic(out_.main.trainer.program, options_, out_);
    }
    out_.passes = history_.passes();
    return std::move(out_);
  }

 private:
  int shards() const { return options_.shards > 0 ? options_.shards : options_.trainers; }

  std::vector<std::string> endpoints() const {
    const int wanted = with_servers_ ? options_.servers : options_.trainers;
    if (!options_.endpoints.empty()) {
      if (static_cast<int>(options_.endpoints.size()) == wanted) return options_.endpoints;
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "the endpoints do not fit the number of processes",
                   .where = "ExplainOptions.endpoints",
                   .expected = str_cat(wanted, " endpoints"),
                   .got = str_cat(options_.endpoints.size()),
                   .fix = "name one for each server or rank, or none"});
    }
    std::vector<std::string> made;
    made.reserve(static_cast<size_t>(std::max(wanted, 0)));
    for (int i = 0; i < wanted; ++i) made.push_back(str_cat("127.0.0.1:", kFirstPort + i));
    return made;
  }

  void describe_job() {
    const Mode& mode = describe(mode_of(options_.config));
    out_.title = options_.title;
    out_.mode = std::string(mode.title);
    out_.sentence = std::string(mode.sentence);
    out_.trainers = options_.trainers;
    out_.shards = shards();
    out_.options = changed_options(options_.config);
    for (const fluid::VarDesc* param : main_.global_block().parameters()) {
      const int64_t elements = param->shape.numel();
      out_.parameter_elements += elements;
      out_.parameter_bytes += elements * static_cast<int64_t>(fluid::dtype_size(param->dtype));
    }
  }

  std::string trainer_name() const {
    return str_cat(with_servers_ ? "trainer " : "rank ", options_.trainer);
  }

  transpiler::TranspileOptions transpile_options() const {
    transpiler::TranspileOptions options;
    options.program = &main_;
    options.startup_program = &startup_;
    if (options_.trainer < 0 || options_.trainer >= options_.trainers) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "there is no such trainer",
                                                .where = "ExplainOptions.trainer, trainers",
                                                .expected = str_cat("0 to ", options_.trainers - 1),
                                                .got = str_cat(options_.trainer),
                                                .fix = "number the trainers from 0"});
    }
    if (shards() < options_.trainers) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "there are fewer logical shards than trainers",
                   .where = "ExplainOptions.shards, trainers",
                   .expected = str_cat("at least ", options_.trainers),
                   .got = str_cat(shards()),
                   .fix = "raise shards, or leave it out"});
    }
    if (with_servers_) {
      options.trainer_id = owned_shards(options_.trainer, options_.trainers, shards()).begin;
      options.trainers = shards();
      options.pservers = join(endpoints_, ",");
      options.current_endpoint = endpoints_.empty() ? "" : endpoints_.front();
    } else {
      options.trainer_id = options_.trainer;
      options.trainers = join(endpoints_, ",");
      options.current_endpoint = endpoints_[static_cast<size_t>(options_.trainer)];
      if (options_.config.mode == "collective") options.logical_shards = shards();
    }
    return options;
  }

  void transpile() {
    transpiler::TranspileOptions options = transpile_options();
    options.pass_observer = [this](const transpiler::PassEvent& event) { history_.observe(event); };
    history_.set_process(trainer_name(), false);
    transpiler_.transpile(options);
  }

  // Where servers are clearly more even with it.
  void propose_balance() {
    constexpr double kWorth = 0.1;  // of what a server has on average
    if (out_.imbalance < 1 + kWorth || options_.config.split_method == "Balanced") return;
    DistributeTranspilerConfig config = options_.config;
    config.split_method = "Balanced";
    DistributeTranspiler balanced(config);
    balanced.transpile(transpile_options());
    Explanation other;
    place(balanced.plan(), main_, other);
    if (out_.imbalance - other.imbalance < kWorth) return;
    out_.warnings.push_back(
        {str_cat("servers are uneven: they have ", shares_of(out_), " % of all parameters"),
         str_cat("split_method = Balanced gives them ", shares_of(other), " %")});
  }

  void explain_given() {
    const PassHistory given(main_, startup_);
    out_.main.local = explain_program("local", main_, given.story_of(main_), wording_, nullptr);
    out_.startup.local =
        explain_program("local", startup_, given.story_of(startup_), wording_, nullptr);
  }

  void explain_trainer() {
    Program main = transpiler_.get_trainer_program();
    Program startup = transpiler_.get_trainer_startup_program();
    const ProgramStory main_story = history_.story_of(main);
    const ProgramStory startup_story = history_.story_of(startup);
    out_.main.trainer =
        explain_program(trainer_name(), std::move(main), main_story, wording_, nullptr);
    out_.startup.trainer =
        explain_program(trainer_name(), std::move(startup), startup_story, wording_, nullptr);
  }

  void explain_servers() {
    const LocalOps main_ops(main_, false);
    const LocalOps startup_ops(startup_, true);
    const size_t shown = std::min(endpoints_.size(), std::max<size_t>(1, options_.most_servers));
    out_.main.servers.reserve(shown);
    out_.startup.servers.reserve(shown);
    for (size_t i = 0; i < shown; ++i) {
      const std::string name = str_cat("server ", i);
      history_.set_process(name, false);
      Program main = transpiler_.get_pserver_program(endpoints_[i]);
      const ProgramStory main_story = history_.story_of(main);
      history_.set_process(name, true);
      Program startup = transpiler_.get_startup_program(endpoints_[i], &main);
      const ProgramStory startup_story = history_.story_of(startup);
      if (i == 0) count_server_traffic(transpiler_.plan(), main_, main, options_, out_);
      out_.main.servers.push_back(
          explain_program(name, std::move(main), main_story, wording_, &main_ops));
      out_.startup.servers.push_back(
          explain_program(name, std::move(startup), startup_story, wording_, &startup_ops));
      out_.main.servers.back().server = static_cast<int>(i);
      out_.startup.servers.back().server = static_cast<int>(i);
    }
  }

  const Program& main_;
  const Program& startup_;
  const ExplainOptions& options_;
  bool with_servers_;
  std::vector<std::string> endpoints_;
  PassHistory history_;
  Wording wording_;
  DistributeTranspiler transpiler_;
  Explanation out_;
};

}  // namespace

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::kKept:
      return "kept";
    case Origin::kChanged:
      return "changed";
    case Origin::kMoved:
      return "moved";
    case Origin::kAdded:
      return "added";
  }
  return "";
}

const std::vector<std::string>& mode_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Mode& mode : kModes) names.emplace_back(mode.name);
    return names;
  }();
  return kNames;
}

DistributeTranspilerConfig config_of_mode(const std::string& mode) {
  const auto& names = mode_names();
  if (std::find(names.begin(), names.end(), mode) == names.end()) {
    throw_error(ErrorCode::kUnknownName, {.what = "unknown mode" + did_you_mean(mode, names),
                                          .where = "mode",
                                          .expected = "one of " + join(names, ", "),
                                          .got = "'" + mode + "'",
                                          .fix = "use one of those names"});
  }
  DistributeTranspilerConfig config;
  if (mode == "nccl2" || mode == "all_reduce" || mode == "local_sgd") {
    config.mode = mode == "nccl2" ? mode : "collective";
    if (mode == "all_reduce") config.collective_mode = "grad_allreduce";
    if (mode == "local_sgd") config.collective_mode = mode;
    config.local_sgd_scheduled = mode == "local_sgd";
    return config;
  }
  if (mode == "sync") return config;
  // As Fleet's strategies have it.
  config.sync_mode = false;
  config.runtime_split_send_recv = true;
  config.half_async = mode == "half_async" || mode == "sync_split";
  config.completely_not_async = mode == "sync_split";
  config.geo_sgd_mode = mode == "geo";
  config.enable_dc_asgd = mode == "dc_asgd";
  return config;
}

namespace {

// The transpiler wants what startup programs declare.
Program declared_by(const Program& main) {
  Program declared;
  for (const fluid::VarDesc* var : main.global_block().vars_in_order()) {
    if (var->persistable) declared.global_block().add_var(*var);
  }
  return declared;
}

}  // namespace

Explanation explain(const Program& main, const Program& startup, const ExplainOptions& options) {
  const auto unknown = unknown_ops(main, startup);
  Program whole = main;
  Program initial = startup.global_block().var_count() > 0 ? startup : declared_by(main);
  take_as_they_are(whole, unknown);
  take_as_they_are(initial, unknown);
  Explanation explanation = Explainer(whole, initial, options).run();
  if (!options.place.is_cpu()) place_ops(options, unknown, explanation);
  if (!unknown.empty()) {
    explanation.warnings.push_back(
        {"this tool does not know these ops: " + join(unknown, ", "),
         "they are taken as the program has them, unchecked; where they are no ops of your own, "
         "correct the program"});
  }
  return explanation;
}

void compare(Explanation& explanation, const std::map<std::string, Program>& ran) {
  std::vector<std::string> others;
  const auto hold = [&](const ExplainedProgram& shown) {
    const auto found = ran.find(shown.process);
    if (found == ran.end()) return;
    const bool same = found->second.to_string() == shown.program.to_string();
    (same ? explanation.confirmed : others).push_back(shown.process);
  };
  hold(explanation.main.trainer);
  for (const ExplainedProgram& server : explanation.main.servers) hold(server);
  if (others.empty()) return;
  explanation.warnings.push_back(
      {"the job ran other programs than are shown: " + join(others, ", "),
       "a strategy of the job's own, or another version of Fleet, made them"});
}

}  // namespace fleet::explain
