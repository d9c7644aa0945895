#include "tests/golden/departures.h"

#include <numeric>
#include <random>

#include "transpiler/training_ops.h"

namespace fleet::golden {
namespace {

using nlohmann::json;
using transpiler::TranspileOptions;

constexpr std::string_view kShard0 = ".trainer_0";

template <class T>
T option(const json& golden, const char* name, T fallback) {
  return golden["config"]["transpiler_config"].value(name, fallback);
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
  return server_job(golden) && !option(golden, "slice_var_up", true);
}

void deal_shuffled(const json& golden, TranspileOptions& options) {
  const auto seed = golden["config"].value("random_seed", 0U);
  options.deal_order =
      numpy_shuffle(seed, transpiler::find_training_ops(*options.program).params.size());
}

bool unusual_call_order(const json& golden) {
  return golden["config"].contains("call_order");
}

void expect_any_order(json& golden) {
  golden.erase("errors");
  golden.erase("late_pserver_startup");
}

constexpr Departure kDepartures[] = {
    {.name = "one trainer",
     .original = "Classic sync with one trainer: servers sum g.trainer_0, the trainer sends g.",
     .ours = "No suffix, no sum, no scale, as in releases 1.5 and 1.6.",
     .reason = "Nothing ever arrives under the name that the server waits for.",
     .applies = classic_sync_one_trainer,
     .expect = expect_no_average},
    {.name = "deal order",
     .original = "slice_var_up = false deals parameters in an order that numpy shuffles.",
     .ours = "Parameters are dealt in their own order; TranspileOptions::deal_order gives another.",
     .reason = "Placement should not depend on another library's generator.",
     .applies = unsliced,
     .configure = deal_shuffled},
    {.name = "call order",
     .original = "Programs asked for after the trainer's read freed ops, or lack initialisers.",
     .ours = "Every program can be asked for in any order, any number of times.",
     .reason = "The order of calls has no meaning to the user.",
     .applies = unusual_call_order,
     .expect = expect_any_order},
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
  };
  return kRefusals;
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
