#include "tests/golden/lookup_departure.h"

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

json output_of(const json& op) {
  return op["outputs"].value("Out", json::array({nullptr}))[0];
}

// Positions of the fake initialisers of tables that are not trained.
std::vector<size_t> emptied_tables(const json& golden) {
  std::vector<size_t> found;
  if (!golden.contains("trainer_startup") || !golden.contains("main_before")) return found;
  std::set<json> trained;
  for (const json& op : golden["main_before"]["blocks"][0]["ops"]) {
    if (op["inputs"].contains("Param")) trained.insert(op["inputs"]["Param"][0]);
  }
  const json& ops = golden["trainer_startup"]["blocks"][0]["ops"];
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i]["type"] == "fake_init" && !trained.contains(output_of(ops[i]))) found.push_back(i);
  }
  return found;
}

// Where in `ops` the op goes that has this position among the user's: behind those before it.
size_t place_of(const json& ops, const json& users, size_t position) {
  std::set<json> before;
  for (size_t i = 0; i < position; ++i) before.insert(output_of(users[i]));
  size_t place = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i]["role"] == "forward" && before.contains(output_of(ops[i]))) place = i + 1;
  }
  return place;
}

void expect_filled_tables(json& golden) {
  const auto emptied = emptied_tables(golden);
  if (emptied.empty()) return;
  json& ops = golden["trainer_startup"]["blocks"][0]["ops"];
  std::set<json> names;
  for (const size_t i : emptied) names.insert(output_of(ops[i]));
  for (auto i = emptied.rbegin(); i != emptied.rend(); ++i) ops.erase(*i);
  const json& users = golden["startup_before"]["blocks"][0]["ops"];
  for (size_t i = 0; i < users.size(); ++i) {
    if (!names.contains(output_of(users[i]))) continue;
    ops.insert(ops.begin() + static_cast<long>(place_of(ops, users, i)), users[i]);
  }
}

}  // namespace

bool empties_a_frozen_table(const json& golden) {
  return !emptied_tables(golden).empty();
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
  expect_filled_tables(golden);
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
