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

// The lookups that the release puts into one op, by padding, largest first.
std::vector<json> split_by_padding(const json& op, const std::map<std::string, json>& padding) {
  std::map<int64_t, json, std::greater<>> parts;
  const json& outputs = op["outputs"]["Outputs"];
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto own = padding.at(outputs[i].get<std::string>()).get<int64_t>();
    if (!parts.contains(own)) {
      json part = op;
      part["inputs"]["Ids"] = json::array();
      part["outputs"]["Outputs"] = json::array();
      part["attrs"]["padding_idx"] = own;
      parts[own] = std::move(part);
    }
    parts[own]["inputs"]["Ids"].push_back(op["inputs"]["Ids"][i]);
    parts[own]["outputs"]["Outputs"].push_back(outputs[i]);
  }
  std::vector<json> ops;
  ops.reserve(parts.size());
  for (auto& [own, part] : parts) ops.push_back(std::move(part));
  return ops;
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

bool different_paddings_of_a_table(const json& golden) {
  std::map<std::string, json> of_tables;
  for (const json& lookup : lookups(golden)) {
    const json own = padding_of(lookup);
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
  json ops = json::array();
  for (json& op : block["ops"]) {
    if (op["type"] != "distributed_lookup_table") {
      ops.push_back(op);
      continue;
    }
    for (json& part : split_by_padding(op, padding)) ops.push_back(std::move(part));
  }
  block["ops"] = std::move(ops);
}

}  // namespace fleet::golden
