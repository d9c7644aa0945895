#include "tests/golden/lookup_departure.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fleet::golden {
namespace {

using nlohmann::json;

// The lookups of the user's program.
std::vector<json> lookups(const json& golden) {
  std::vector<json> found;
  if (!golden.contains("main_before")) return found;
  for (const json& op : golden["main_before"]["blocks"][0]["ops"]) {
    if (op["type"] == "lookup_table" || op["type"] == "lookup_table_v2") found.push_back(op);
  }
  return found;
}

json padding_of(const json& lookup) {
  return lookup["attrs"].value("padding_idx", json(-1));
}

// By the lookup's output.
std::map<std::string, json> paddings(const json& golden) {
  std::map<std::string, json> found;
  for (const json& lookup : lookups(golden)) {
    found[lookup["outputs"]["Out"][0].get<std::string>()] = padding_of(lookup);
  }
  return found;
}

// The release wants a column of ids.
bool is_of_the_rank_of_ids(const json& error) {
  return error["stage"] == "transpile" &&
         error["message"] == "The dimension of the 'Ids' tensor must be 2.";
}

// Padding and op type.
using GroupKey = std::pair<int64_t, std::string>;

void add_lookup(json& part, const json& ids, const json& output) {
  part["inputs"]["Ids"].push_back(ids);
  part["outputs"]["Outputs"].push_back(output);
}

// What one op of the release's becomes, with the lookups of the table that the release left behind:
// one op for each padding and op type, in the order in which they stand.
std::vector<json> split_lookups(const json& op, const std::map<std::string, json>& padding,
                                const std::vector<json>& left_behind) {
  std::map<GroupKey, json, std::greater<>> parts;
  const auto part = [&](const GroupKey& key) -> json& {
    const auto [at, is_new] = parts.emplace(key, op);
    if (is_new) {
      at->second["inputs"]["Ids"] = json::array();
      at->second["outputs"]["Outputs"] = json::array();
      at->second["attrs"]["padding_idx"] = key.first;
      at->second["attrs"]["lookup_table_version"] = key.second;
    }
    return at->second;
  };
  const json& outputs = op["outputs"]["Outputs"];
  const auto version = op["attrs"]["lookup_table_version"].get<std::string>();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto own = padding.at(outputs[i].get<std::string>()).get<int64_t>();
    add_lookup(part({own, version}), op["inputs"]["Ids"][i], outputs[i]);
  }
  for (const json& lookup : left_behind) {
    add_lookup(part({padding_of(lookup).get<int64_t>(), lookup["type"].get<std::string>()}),
               lookup["inputs"]["Ids"][0], lookup["outputs"]["Out"][0]);
  }
  std::vector<json> ops;
  ops.reserve(parts.size());
  for (auto& [key, made] : parts) ops.push_back(std::move(made));
  return ops;
}

// Of each table with a distributed_lookup_table, the lookups that the release left on the trainer.
std::map<json, std::vector<json>> left_behind(const json& ops) {
  std::map<json, std::vector<json>> found;
  for (const json& op : ops) {
    if (op["type"] == "distributed_lookup_table") found[op["inputs"]["W"][0]];
  }
  for (const json& op : ops) {
    const bool lookup = op["type"] == "lookup_table" || op["type"] == "lookup_table_v2";
    if (!lookup || !op["attrs"].value("remote_prefetch", false)) continue;
    const auto table = found.find(op["inputs"]["W"][0]);
    if (table != found.end()) table->second.push_back(op);
  }
  return found;
}

}  // namespace

bool looks_a_frozen_table_up(const json& golden) {
  if (!golden.contains("main_before")) return false;
  std::set<json> trained;
  for (const json& op : golden["main_before"]["blocks"][0]["ops"]) {
    if (op["inputs"].contains("Param")) trained.insert(op["inputs"]["Param"][0]);
  }
  const auto found = lookups(golden);
  return std::any_of(found.begin(), found.end(), [&trained](const json& lookup) {
    return !trained.contains(lookup["inputs"]["W"][0]);
  });
}

bool looks_a_dense_table_up_sparsely(const json& golden) {
  std::set<std::string> sparse;
  for (const json& op : lookups(golden)) {
    if (!op["attrs"].value("is_sparse", false)) continue;
    sparse.insert(op["inputs"]["W"][0].get<std::string>() + "@GRAD");
  }
  if (sparse.empty()) return false;
  for (const json& var : golden["main_before"]["blocks"][0]["vars"]) {
    if (sparse.contains(var["name"].get<std::string>()) && var["kind"] == "LOD_TENSOR") return true;
  }
  return false;
}

bool different_lookups_of_a_table(const json& golden) {
  std::map<std::string, std::pair<json, json>> of_tables;
  for (const json& lookup : lookups(golden)) {
    const std::pair<json, json> own = {padding_of(lookup), lookup["type"]};
    const auto [first, is_new] =
        of_tables.emplace(lookup["inputs"]["W"][0].get<std::string>(), own);
    if (!is_new && first->second != own) return true;
  }
  return false;
}

bool looks_ids_of_rank_1_up(const json& golden) {
  std::set<json> ids;
  for (const json& lookup : lookups(golden)) ids.insert(lookup["inputs"]["Ids"][0]);
  if (ids.empty()) return false;
  for (const json& var : golden["main_before"]["blocks"][0]["vars"]) {
    if (ids.contains(var["name"]) && var["shape"].size() == 1) return true;
  }
  return false;
}

void expect_local_lookups(json& golden) {
  if (golden.contains("errors") && looks_ids_of_rank_1_up(golden)) {
    json others = json::object();
    for (const auto& [role, error] : golden["errors"].items()) {
      if (!is_of_the_rank_of_ids(error)) others[role] = error;
    }
    golden["errors"] = std::move(others);
  }
  if (!golden.contains("trainer")) return;
  const auto padding = paddings(golden);
  json& block = golden["trainer"]["blocks"][0];
  const auto others = left_behind(block["ops"]);
  json ops = json::array();
  for (json& op : block["ops"]) {
    const bool looks_up = op["inputs"].contains("W") && !op["inputs"]["W"].empty();
    const auto table = looks_up ? others.find(op["inputs"]["W"][0]) : others.end();
    if (op["type"] == "distributed_lookup_table") {
      for (json& part : split_lookups(op, padding, table->second)) ops.push_back(std::move(part));
      continue;
    }
    const bool moved =
        table != others.end() &&
        std::find(table->second.begin(), table->second.end(), op) != table->second.end();
    if (!moved) ops.push_back(op);
  }
  block["ops"] = std::move(ops);
}

}  // namespace fleet::golden
