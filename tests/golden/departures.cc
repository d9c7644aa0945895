#include "tests/golden/departures.h"

#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "tests/golden/lookup_departure.h"
#include "transpiler/training_ops.h"

namespace fleet::golden {
namespace {

using nlohmann::json;
using transpiler::DistributeTranspilerConfig;
using transpiler::TranspileOptions;

constexpr std::string_view kShard0 = ".trainer_0";

template <class T>
T option(const json& golden, const char* name, T fallback) {
  return golden["config"].value("transpiler_config", json::object()).value(name, fallback);
}

bool server_job(const json& golden) {
  return golden["kind"] == "ps" && option<std::string>(golden, "mode", "pserver") == "pserver";
}

bool classic_sync(const json& golden) {
  return server_job(golden) && option(golden, "sync_mode", true);
}

bool classic_sync_one_trainer(const json& golden) {
  return classic_sync(golden) && golden["config"]["trainers"] == 1;
}

void strip_shard(std::string& text) {
  const auto at = text.find(kShard0);
  if (at != std::string::npos) text.erase(at, kShard0.size());
}

// Every text in the value loses its shard.
void strip_shards(json& value) {
  if (value.is_string()) {
    auto text = value.get<std::string>();
    strip_shard(text);
    value = text;
  } else if (value.is_structured()) {
    for (json& item : value) strip_shards(item);
  }
}

bool averages_one(const json& op) {
  if (op["type"] == "scale") return op["role"] == "forward" && op["attrs"]["scale"] == 1.0;
  return op["type"] == "sum" && op["role"] == "forward" && op["inputs"]["X"].size() == 1;
}

void expect_no_average(json& golden) {
  for (json& pair : golden["pservers"]) {
    for (const char* part : {"main", "startup"}) {
      for (json& block : pair[part]["blocks"]) {
        json ops = json::array();
        for (json& op : block["ops"]) {
          if (!averages_one(op)) ops.push_back(op);
        }
        json vars = json::array();
        for (json& var : block["vars"]) {
          if (var["name"].get<std::string>().find(kShard0) == std::string::npos) {
            vars.push_back(var);
          }
        }
        strip_shards(ops);
        block["ops"] = std::move(ops);
        block["vars"] = std::move(vars);
      }
    }
  }
}

bool unsliced(const json& golden) {
  const bool dispatches = server_job(golden) && !option(golden, "geo_sgd_mode", false);
  return dispatches && !option(golden, "slice_var_up", true);
}

void deal_shuffled(const json& golden, DistributeTranspilerConfig&, TranspileOptions& options) {
  const auto seed = golden["config"].value("random_seed", 0U);
  options.dispatch_order =
      numpy_shuffle(seed, transpiler::find_training_ops(*options.program).params.size());
}

bool unusual_call_order(const json& golden) {
  return golden["config"].contains("call_order");
}

void expect_any_order(json& golden) {
  golden.erase("errors");
  golden.erase("late_pserver_startup");
}

bool dc_asgd(const json& golden) {
  return server_job(golden) && option(golden, "enable_dc_asgd", false) && !classic_sync(golden);
}

void expect_no_servers(json& golden) {
  golden.erase("pservers");
  golden.erase("errors");
  golden.erase("trainer_dist");
}

// The release's ops take no rows: it stops at servers that would compensate them.
bool compensates_rows(const json& golden) {
  for (const json& block : golden["main_before"]["blocks"]) {
    for (const json& var : block["vars"]) {
      if (var["kind"] == "SELECTED_ROWS") return true;
    }
  }
  return false;
}

void compensate_as_paddle(const json& golden, DistributeTranspilerConfig& config,
                          TranspileOptions&) {
  if (compensates_rows(golden)) return;
  const DistributeTranspilerConfig usual;
  config.dc_asgd_form = "paddle";
  config.dc_asgd_lambda = usual.dc_asgd_lambda;
  config.dc_asgd_m = usual.dc_asgd_m;
  config.dc_asgd_epsilon = usual.dc_asgd_epsilon;
}

void expect_compensated_rows(json& golden) {
  if (compensates_rows(golden)) expect_no_servers(golden);
}

bool geo(const json& golden) {
  if (golden["kind"] == "fleet")
    return golden["config"]["fleet"].value("strategy", json()) == "geo";
  return server_job(golden) && option(golden, "geo_sgd_mode", false);
}

// Calls f with every op of every program in the value.
template <class F>
void each_op(json& value, const F& f) {
  if (value.is_object() && value.contains("ops") && value.contains("vars")) {
    for (json& op : value["ops"]) f(op);
  } else if (value.is_structured()) {
    for (json& item : value) each_op(item, f);
  }
}

void expect_plain_notices(json& golden) {
  for (const char* key : {"trainer", "trainer_startup", "workers"}) {
    if (!golden.contains(key)) continue;
    each_op(golden[key], [](json& op) {
      if (op["type"] != "send") return;
      op["role"] = "rpc";
      op["attrs"]["epmap"] = json::array();
    });
  }
}

bool local_sgd(const json& golden) {
  if (golden["kind"] == "fleet") {
    const json& fleet = golden["config"]["fleet"];
    return fleet.contains("collective") && fleet["collective"].value("use_local_sgd", false);
  }
  return option<std::string>(golden, "collective_mode", "") == "local_sgd";
}

// Parameters, which the release turns into bool too, and snapshots have the parameters' type.
void type_snapshots(json& value) {
  if (value.is_object() && value.contains("ops") && value.contains("vars")) {
    for (json& var : value["vars"]) {
      const bool snapshot = var["name"].get<std::string>().ends_with("@SNAPSHOT");
      if ((snapshot || var["is_parameter"] == true) && var["dtype"] == "bool") {
        var["dtype"] = "float32";
      }
    }
  } else if (value.is_structured()) {
    for (json& item : value) type_snapshots(item);
  }
}

void expect_typed_snapshots(json& golden) {
  for (const char* key : {"main", "workers"}) {
    if (golden.contains(key)) type_snapshots(golden[key]);
  }
}

void average_each_step(const json&, DistributeTranspilerConfig& config, TranspileOptions&) {
  config.local_sgd_scheduled = false;
}

std::string optimizer_of(const json& golden) {
  return golden["config"].value("optimizer", json::object()).value("type", "");
}

bool on_servers(const json& golden) {
  return server_job(golden) && !option(golden, "geo_sgd_mode", false);
}

bool clips_on_servers(const json& golden) {
  const json optimizer = golden["config"].value("optimizer", json::object());
  return on_servers(golden) && optimizer.contains("grad_clip") && !optimizer["grad_clip"].is_null();
}

// The release's programs cannot run: there is nothing to compare but the user's own.
void expect_nothing_transpiled(json& golden) {
  for (const char* key : {"trainer", "trainer_startup", "trainer_dist", "pservers", "errors"}) {
    golden.erase(key);
  }
}

bool updates_that_the_release_lacks(const json& golden) {
  const std::string optimizer = optimizer_of(golden);
  if (local_sgd(golden)) return optimizer == "Adadelta";
  return on_servers(golden) && (optimizer == "Adadelta" || optimizer == "Lamb");
}

bool norms_of_slices(const json& golden) {
  const std::string optimizer = optimizer_of(golden);
  return on_servers(golden) && (optimizer == "LarsMomentum" || optimizer == "Dpsgd");
}

void take_norms_of_slices(const json&, DistributeTranspilerConfig& config, TranspileOptions&) {
  config.whole_norms = false;
}

// The row of the parameter's slice on the same server that a row of state belongs to.
const json* slice_row(const json& rows, const json& state) {
  const auto name = state["origin"].get<std::string>();
  for (const json& row : rows) {
    if (row["vtype"] == "Optimizer" || !row["is_slice"].get<bool>()) continue;
    const auto param = row["origin"].get<std::string>();
    if (name.starts_with(param + "_") && row["endpoint"] == state["endpoint"] &&
        row["origin_shape"] == state["origin_shape"]) {
      return &row;
    }
  }
  return nullptr;
}

bool whole_state_of_slices(const json& golden) {
  if (!on_servers(golden) || !golden.contains("trainer_dist")) return false;
  const json rows = golden["trainer_dist"].value("vars_overview", json::array());
  for (const json& row : rows) {
    if (row["vtype"] == "Optimizer" && !row["is_slice"].get<bool>() && slice_row(rows, row)) {
      return true;
    }
  }
  return false;
}

void shape_in_program(json& pair, const json& row) {
  for (const char* part : {"main", "startup"}) {
    for (json& block : pair[part]["blocks"]) {
      for (json& var : block["vars"]) {
        if (var["name"] == row["slice"]) var["shape"] = row["slice_shape"];
      }
      for (json& op : block["ops"]) {
        const bool makes = op["outputs"].contains("Out") && !op["outputs"]["Out"].empty() &&
                           op["outputs"]["Out"][0] == row["slice"];
        if (makes && op["attrs"].contains("shape")) op["attrs"]["shape"] = row["slice_shape"];
      }
    }
  }
}

void expect_sliced_state(json& golden) {
  json& rows = golden["trainer_dist"]["vars_overview"];
  const json before = rows;
  for (json& row : rows) {
    if (row["vtype"] != "Optimizer" || row["is_slice"].get<bool>()) continue;
    const json* slice = slice_row(before, row);
    if (slice == nullptr) continue;
    for (const char* field : {"is_slice", "block_id", "offset", "slice_shape"}) {
      row[field] = (*slice)[field];
    }
    shape_in_program(golden["pservers"][row["endpoint"].get<std::string>()], row);
  }
}

bool nested_schedule(const json& golden) {
  const json optimizer = golden["config"].value("optimizer", json::object());
  if (!optimizer.contains("learning_rate")) return false;
  const json& rate = optimizer["learning_rate"];
  return on_servers(golden) && rate.is_object() && rate.value("schedule", "") == "linear_lr_warmup";
}

void expect_trainer_only(json& golden) {
  golden.erase("pservers");
  golden.erase("errors");
}

bool has_layer(const json& golden, std::string_view name) {
  for (const json& layer : golden["net"]["layers"]) {
    if (layer["layer"] == name) return true;
  }
  return false;
}

bool layer_argument(const json& golden, std::string_view layer, const char* argument) {
  for (const json& each : golden["net"]["layers"]) {
    if (each["layer"] != layer || !each.contains("args")) continue;
    if (each["args"].value(argument, false)) return true;
  }
  return false;
}

bool error_clip(const json& golden) {
  return golden["kind"] != "layers" && has_layer(golden, "error_clip");
}

// Under GEO the release looks for W in dense ones, and in trees, too.
bool sparse_nce(const json& golden) {
  if (geo(golden)) return has_layer(golden, "nce") || has_layer(golden, "hsigmoid");
  return on_servers(golden) && layer_argument(golden, "nce", "is_sparse");
}

// Without a tree of one's own the layer makes it dense.
bool sparse_tree(const json& golden) {
  if (!on_servers(golden)) return false;
  for (const json& layer : golden["net"]["layers"]) {
    if (layer["layer"] != "hsigmoid" || !layer.contains("args")) continue;
    const json& args = layer["args"];
    if (args.value("is_sparse", false) && args.value("is_custom", false)) return true;
  }
  return false;
}

void receive_whole_trees(const json&, DistributeTranspilerConfig& config, TranspileOptions&) {
  config.prefetch_trees = false;
}

bool distributed_table(const json& golden) {
  return (server_job(golden) || golden["kind"] == "fleet") &&
         (layer_argument(golden, "embedding", "is_distributed") ||
          layer_argument(golden, "fluid.embedding", "is_distributed"));
}

// The release updates such tables by plain SGD, without clip and decay.
bool updates_tables_by_another_rule(const json& golden) {
  if (!layer_argument(golden, "embedding", "is_distributed")) return false;
  const json optimizer = golden["config"].value("optimizer", json::object());
  if (optimizer.value("type", "") != "SGD") return true;
  for (const char* more : {"regularization", "grad_clip", "set_gradient_clip"}) {
    if (optimizer.contains(more)) return true;
  }
  for (const json& layer : golden["net"]["layers"]) {
    if (layer["layer"] == "embedding" && layer.dump().find("regularizer") != std::string::npos) {
      return true;
    }
  }
  return false;
}

void expect_distributed_tables(json& golden) {
  if (!geo(golden) || updates_tables_by_another_rule(golden)) {
    return expect_nothing_transpiled(golden);
  }
  if (golden.contains("trainer_dist")) golden["trainer_dist"]["distributed_lookup_table"] = nullptr;
}

bool hash_name(const json& golden) {
  return server_job(golden) && option<std::string>(golden, "split_method", "") == "HashName";
}

bool fleet_synchronous(const json& golden) {
  if (golden["kind"] != "fleet") return false;
  const json& fleet = golden["config"]["fleet"];
  if (fleet.contains("collective")) return false;
  const json& strategy = fleet.at("strategy");
  if (strategy != "DistributeTranspilerConfig") return !strategy.is_string() || strategy == "sync";
  return option(golden, "sync_mode", true) || option(golden, "completely_not_async", false);
}

// A configuration that says completely_not_async is half-async in the release.
void expect_synchronous(json& golden) {
  if (!option(golden, "completely_not_async", false) || !golden.contains("workers")) return;
  for (json& worker : golden["workers"]) worker["effective_strategy"] = "SyncStrategy";
}

bool averages_on_servers(const json& golden) {
  return classic_sync(golden) ||
         (server_job(golden) && option(golden, "completely_not_async", false));
}

bool keeps_statistics(const json& golden) {
  return has_layer(golden, "batch_norm") &&
         (averages_on_servers(golden) || fleet_synchronous(golden));
}

void keep_statistics_local(const json&, DistributeTranspilerConfig& config, TranspileOptions&) {
  config.server_statistics = false;
}

bool changes_lookups(const json& golden) {
  return on_servers(golden) &&
         (different_lookups_of_a_table(golden) || looks_ids_of_rank_1_up(golden) ||
          looks_a_frozen_table_up(golden) || looks_a_dense_table_up_sparsely(golden));
}

void empty_frozen_tables(const json& golden, DistributeTranspilerConfig& config,
                         TranspileOptions&) {
  if (config.geo_sgd_mode) return;
  if (looks_a_frozen_table_up(golden) || looks_a_dense_table_up_sparsely(golden)) {
    config.initialise_frozen_tables = false;
  }
}

void split_at_run_time(const json&, DistributeTranspilerConfig& config, TranspileOptions&) {
  config.sync_mode = false;
  config.runtime_split_send_recv = true;
  config.half_async = true;
  config.completely_not_async = true;
}

bool tree_of_data(const json& golden) {
  if (golden["kind"] != "layers" || !has_layer(golden, "hsigmoid")) return false;
  return golden.contains("errors") && golden["errors"].contains("program");
}

void expect_a_gradient(json& golden) {
  golden.erase("errors");
}

constexpr Departure kDepartures[] = {
    {.name = "one trainer",
     .paddle = "Classic sync with one trainer: servers sum g.trainer_0, the trainer sends g.",
     .ours = "No suffix, no sum, no scale, as in releases 1.5 and 1.6.",
     .reason = "Nothing ever arrives under the name that the server waits for.",
     .cases = "linreg-sync-1tr",
     .applies = classic_sync_one_trainer,
     .expect = expect_no_average},
    {.name = "dispatch order",
     .paddle = "slice_var_up = false dispatches parameters in an order that numpy shuffles.",
     .ours = "Parameters are dispatched in their own order; TranspileOptions::dispatch_order gives "
             "another.",
     .reason = "Placement should not depend on another library's generator.",
     .cases = "linreg-sync-noslice",
     .applies = unsliced,
     .configure = deal_shuffled},
    {.name = "call order",
     .paddle = "Programs asked for after the trainer's read freed ops, or lack initialisers.",
     .ours = "Every program can be asked for in any order, any number of times.",
     .reason = "The order of calls has no meaning to the user.",
     .cases = "crash-server-after-trainer",
     .applies = unusual_call_order,
     .expect = expect_any_order},
    {.name = "delay compensation",
     .paddle = "DC-ASGD adds g g (w - w_bak): lambda is 1, and nothing else can be asked for.",
     .ours = "dc_asgd_form \"constant\", \"adaptive\" or \"clipped\" (the default); \"paddle\" "
             "is the "
             "release's; rows are compensated too, where its ops stop at them.",
     .reason = "With lambda 1 training diverges where the paper's rule does not.",
     .cases = "linreg-dcasgd",
     .applies = dc_asgd,
     .expect = expect_compensated_rows,
     .configure = compensate_as_paddle},
    {.name = "GEO notices",
     .paddle = "The send that GEO appends has role forward and a default epmap.",
     .ours = "Role rpc, and no endpoint.",
     .reason = "It sends nothing: it tells the runtime of the step.",
     .cases = "linreg-geo",
     .applies = geo,
     .expect = expect_plain_notices},
    {.name = "LocalSGD",
     .paddle = "Parameters are averaged after every step; snapshots are declared as bool.",
     .ours = "local_sgd_scheduled: one op, and a schedule says when; snapshots have their "
             "parameter's type.",
     .reason = "LocalSGD is there to communicate less.",
     .cases = "fleet-collective-local-sgd linreg-local-sgd-2rings-adam",
     .applies = local_sgd,
     .expect = expect_typed_snapshots,
     .configure = average_each_step},
    {.name = "clipping",
     .paddle = "grad_clip= leaves programs that cannot run: nothing makes what trainers send.",
     .ours =
         "Synchronous servers clip the averaged whole gradient; elsewhere trainers clip theirs.",
     .reason = "Clipping has the meaning that it has in a local run.",
     .cases = "crash-clip-value crash-clip-norm crash-clip-global-norm crash-l2-clip-filtered "
              "async-clip-global-norm",
     .applies = clips_on_servers,
     .expect = expect_nothing_transpiled},
    {.name = "optimizers",
     .paddle = "Servers get no update op for Adadelta; Lamb is refused.",
     .ours = "Both are updates like the others; Lamb's norms are those of the whole parameter.",
     .reason = "A parameter that is never updated is not trained.",
     .cases = "linreg-sync-adadelta crash-lamb",
     .applies = updates_that_the_release_lacks,
     .expect = expect_no_servers},
    {.name = "norms",
     .paddle = "LARS and Dpsgd take the norms of a slice.",
     .ours = "The norms of the whole parameter and gradient; whole_norms = false is the release's.",
     .reason = "The step must not depend on the number of servers.",
     .cases = "linreg-sync-lars",
     .applies = norms_of_slices,
     .configure = take_norms_of_slices},
    {.name = "sliced state",
     .paddle = "State of the parameter's shape that no table names (MeanGrad) stays whole.",
     .ours = "All state of the parameter's shape is cut with it.",
     .reason = "An update op wants parameter and state of one shape.",
     .cases = "linreg-sync-rmsprop-centered",
     .applies = whole_state_of_slices,
     .expect = expect_sliced_state},
    {.name = "nested schedules",
     .paddle = "Blocks of a schedule with variables of their own (warm-up) cannot be copied.",
     .ours = "Their variables are copied with them.",
     .reason = "Schedules should not depend on where they run.",
     .cases = "crash-warmup",
     .applies = nested_schedule,
     .expect = expect_trainer_only},
    {.name = "error clip",
     .paddle = "Ops of an error clip have no role, and the release stops.",
     .ours = "They have role backward.",
     .reason = "They are part of backward.",
     .cases = "crash-error-clip",
     .applies = error_clip,
     .expect = expect_nothing_transpiled},
    {.name = "sparse nce",
     .paddle = "Sparse nce stops: an input W is looked for, which nce does not have.",
     .ours = "As in release 1.6: the weight is fetched, the bias is received.",
     .reason = "Its weight is a table like others.",
     .cases = "crash-nce-sparse async-nce-sparse",
     .applies = sparse_nce,
     .expect = expect_nothing_transpiled},
    {.name = "sparse hsigmoid",
     .paddle = "The whole weight of a sparse hsigmoid is received.",
     .ours = "Its rows are fetched, as in release 1.6; prefetch_trees = false is the release's.",
     .reason = "Its weight is a table like others.",
     .cases = "hsigmoid-sync",
     .applies = sparse_tree,
     .configure = receive_whole_trees},
    {.name = "distributed tables",
     .paddle = "Tables of embedding with is_distributed are updated by plain SGD, without clip and "
               "decay, and stop the release but under GEO; more than one is refused; those of "
               "fluid.embedding are received whole.",
     .ours = "As in release 1.6, any number of them, with any update of selected rows.",
     .reason = "A model may have several tables that fit on no trainer.",
     .cases = "crash-is-distributed crash-two-distributed-tables async-is-distributed "
              "distributed-rmsprop",
     .applies = distributed_table,
     .expect = expect_distributed_tables},
    {.name = "lookups",
     .paddle = "Lookups of one table with different padding become one with the first's, those of "
               "another op type read an empty table; ids of rank 1 stop; tables of embedding that "
               "are not trained have no values on trainers, those with sparse and dense lookups "
               "none in the first step.",
     .ours = "One op for each padding and op type; ids of any rank; frozen tables begin as in a "
             "local run, others are received, with initialise_frozen_tables = false as in the "
             "release.",
     .reason = "A lookup must give what it gives locally.",
     .cases = "embedding-v2-sync crash-embedding-v2-rank1 dcasgd-two-versions "
              "sparse-and-dense-lookups",
     .applies = changes_lookups,
     .expect = expect_local_lookups,
     .configure = empty_frozen_tables},
    {.name = "hash placement",
     .paddle = "split_method = HashName stops, and hashed differently in every process.",
     .ours = "A stable hash of the slice's name.",
     .reason = "All processes must agree.",
     .cases = "crash-hashname",
     .applies = hash_name,
     .expect = expect_nothing_transpiled},
    {.name = "statistics",
     .paddle = "Moving statistics of batch norm stay with each trainer.",
     .ours = "Synchronous servers average them over the shards; server_statistics = false is the "
             "release's.",
     .reason = "A job has one model, which can be saved and tested.",
     .cases = "bn-dropout-sync",
     .applies = keeps_statistics,
     .configure = keep_statistics_local},
    {.name = "synchronous strategy",
     .paddle = "Fleet's synchronous strategy emits the runtime-split form, and takes a "
               "configuration with completely_not_async for a half-async one.",
     .ours = "The classic form; SyncStrategy{.runtime_split_send_recv = true} is the release's.",
     .reason = "It is the form that the strategy's documents describe.",
     .cases = "fleet-linreg-default",
     .applies = fleet_synchronous,
     .expect = expect_synchronous,
     .configure = split_at_run_time},
    {.name = "hsigmoid on data",
     .paddle = "hsigmoid straight on a data variable stops in append_backward.",
     .ours = "Its gradient op leaves X@GRAD out.",
     .reason = "Nobody wants the gradient of data.",
     .cases = "layers/hsigmoid-on-data",
     .applies = tree_of_data,
     .expect = expect_a_gradient},
};

bool small_block(const json& golden) {
  return server_job(golden) && option(golden, "min_block_size", 8192) < 8192;
}

bool runtime_split_sync(const json& golden) {
  return classic_sync(golden) && option(golden, "runtime_split_send_recv", false);
}

bool dc_asgd_sync(const json& golden) {
  return classic_sync(golden) && option(golden, "enable_dc_asgd", false);
}

bool dense_distributed_table(const json& golden) {
  const bool servers = server_job(golden) || golden["kind"] == "fleet";
  if (!servers || geo(golden) || !golden.contains("main_before")) return false;
  for (const json& op : golden["main_before"]["blocks"][0]["ops"]) {
    const json& attrs = op["attrs"];
    if (op["role"] != "forward" || !attrs.value("is_distributed", false)) continue;
    if (!attrs.value("is_sparse", false)) return true;
  }
  return false;
}

bool one_rank(const json& golden) {
  return option<std::string>(golden, "mode", "pserver") == "collective" &&
         option<std::string>(golden, "collective_mode", "") != "single_process_multi_thread" &&
         golden["config"]["trainer_endpoints"].size() == 1;
}

}  // namespace

std::span<const Departure> departures() {
  return kDepartures;
}

std::span<const Refusal> refusals() {
  static const std::vector<Refusal> kRefusals = {
      {"Slices below 8192 elements cost more than they share.", small_block, {"min_block_size"}},
      {"Runtime split has no barriers of its own.",
       runtime_split_sync,
       {"runtime_split_send_recv", "sync_mode"}},
      {"There is no delay to compensate.", dc_asgd_sync, {"enable_dc_asgd", "sync_mode"}},
      {"One rank has nobody to reduce with.", one_rank, {"trainers", "mode"}},
      {"Rows of a distributed table travel, dense gradients do not.",
       dense_distributed_table,
       {"is_sparse", "is_distributed"},
       ErrorCode::kNotSupported},
  };
  return kRefusals;
}

void expect_own_net(json& golden) {
  if (!updates_tables_by_another_rule(golden)) return;
  golden.erase("main_before");
  golden.erase("startup_before");
}

std::vector<size_t> numpy_shuffle(uint32_t seed, size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 generator(seed);
  for (size_t i = count; i-- > 1;) {
    uint32_t mask = 1;
    while (mask < i) mask = mask << 1 | 1;
    uint32_t pick = generator() & mask;
    while (pick > i) pick = generator() & mask;
    std::swap(order[i], order[pick]);
  }
  return order;
}

}  // namespace fleet::golden
