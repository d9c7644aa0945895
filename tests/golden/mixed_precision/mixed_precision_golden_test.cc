// What Paddle makes of nets in mixed precision, and what this library makes of them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <utility>

#include "base/strings.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/ops/append.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_compare.h"
#include "tests/golden/golden_net.h"
#include "tests/testing/paths.h"

namespace fleet::golden {
namespace {

namespace mixed_precision = fluid::mixed_precision;

std::filesystem::path folder() {
  return fleet::testing::source_path("tests/golden/mixed_precision");
}

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

mixed_precision::Options options_of(const Json& amp) {
  mixed_precision::Options options;
  auto& scaling = options.scaling;
  scaling.init_loss_scaling = amp.value("init_loss_scaling", scaling.init_loss_scaling);
  scaling.use_dynamic_loss_scaling = amp.value("use_dynamic_loss_scaling", true);
  scaling.incr_every_n_steps = amp.value("incr_every_n_steps", scaling.incr_every_n_steps);
  scaling.decr_every_n_nan_or_inf =
      amp.value("decr_every_n_nan_or_inf", scaling.decr_every_n_nan_or_inf);
  scaling.incr_ratio = amp.value("incr_ratio", scaling.incr_ratio);
  scaling.decr_ratio = amp.value("decr_ratio", scaling.decr_ratio);
  const Json lists = amp.value("lists", Json::object());
  const auto names = [&lists](const char* list) {
    return lists.value(list, Json::array()).get<std::set<std::string>>();
  };
  options.lists = {.custom_white_list = names("custom_white_list"),
                   .custom_black_list = names("custom_black_list"),
                   .custom_black_varnames = names("custom_black_varnames")};
  return options;
}

Json& main_ops(Json& golden) {
  return golden["main"]["blocks"][0]["ops"];
}

bool makes(const Json& op, const std::string& name) {
  for (const auto& [slot, names] : op["outputs"].items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  }
  return false;
}

bool is_inserted_cast(const Json& op) {
  return op["type"] == "cast" &&
         op["outputs"]["Out"][0].get<std::string>().find(".cast_fp") != std::string::npos;
}

// The release notes the type it computes in on ops that it inserts no cast for, too.
void expect_true_types(Json& golden) {
  std::map<std::string, std::string> types;
  for (const Json& var : golden["main"]["blocks"][0]["vars"]) {
    if (var["dtype"].is_string()) types[var["name"]] = var["dtype"];
  }
  for (Json& op : main_ops(golden)) {
    if (!op["attrs"].contains("in_dtype")) continue;
    op["attrs"]["in_dtype"] = op["type"] == "cast" ? Json(types[op["inputs"]["X"][0]]) : Json(-1);
  }
}

// A cast of what needs no gradient needs none, either: the release computes the gradient of the
// batch that is fed.
void expect_no_gradients_of_data(Json& golden) {
  std::set<std::string> stopped;
  Json& vars = golden["main"]["blocks"][0]["vars"];
  for (const Json& var : vars) {
    if (var["stop_gradient"] == true) stopped.insert(var["name"]);
  }
  std::set<std::string> casts;
  for (const Json& op : main_ops(golden)) {
    if (is_inserted_cast(op) && stopped.contains(op["inputs"]["X"][0])) {
      casts.insert(op["outputs"]["Out"][0].get<std::string>());
    }
  }
  const auto gone = [&casts](const Json& name) {
    const auto text = name.get<std::string>();
    const auto at = text.find("@GRAD");
    return at != std::string::npos && casts.contains(text.substr(0, at));
  };
  for (Json& var : vars) {
    if (casts.contains(var["name"])) var["stop_gradient"] = true;
  }
  const auto is_gone = [&gone](const Json& var) { return gone(var["name"]); };
  vars.erase(std::remove_if(vars.begin(), vars.end(), is_gone), vars.end());
  Json ops = Json::array();
  for (Json& op : main_ops(golden)) {
    bool any = op["type"] == "conditional_block";
    for (auto& [slot, names] : op["outputs"].items()) {
      if (names.size() == 1 && gone(names[0])) names = Json::array();
      any = any || !names.empty();
    }
    if (any) ops.push_back(op);
  }
  main_ops(golden) = std::move(ops);
}

// Gradients of parameters are cast to float32 where they are made, and summed as such.
void expect_float_gradients(Json& golden) {
  std::map<std::string, Json> moved;  // by what they cast
  Json ops = Json::array();
  for (Json& op : main_ops(golden)) {
    const bool moves = op["type"] == "cast" && op["role"] == "optimize";
    if (moves) moved[op["inputs"]["X"][0]] = op;
    if (!moves) ops.push_back(op);
  }
  Json all = Json::array();
  Json waiting = Json::array();  // behind the casts of gradients that are no parameters'
  for (Json& op : ops) {
    if (op["type"] != "cast") {
      for (Json& cast : waiting) all.push_back(cast);
      waiting.clear();
    }
    const Json of = std::exchange(op["role_var"], Json::array());
    for (size_t i = 0; i + 1 < of.size(); i += 2) {
      const auto found = moved.find(of[i + 1]);
      if (found == moved.end()) {
        op["role_var"].insert(op["role_var"].end(), {of[i], of[i + 1]});
        continue;
      }
      Json& cast = found->second;
      cast["role"] = "backward";
      cast["role_var"] = {of[i], cast["outputs"]["Out"][0]};
      waiting.push_back(cast);
    }
    all.push_back(op);
  }
  main_ops(golden) = std::move(all);
}

// What follows the gradients belongs to the optimizer, and runs once a step; so do the two numbers
// that it compares with, which are made in front of it.
void expect_scaling_once_a_step(Json& golden) {
  Json limits = Json::array();
  Json ops = Json::array();
  bool optimizes = false;
  for (Json& op : main_ops(golden)) {
    const bool limit = op["type"] == "fill_constant" && op["role"] == "forward" &&
                       op["attrs"].value("dtype", "") == "int32" && !optimizes;
    optimizes = optimizes || op["role"] == "optimize";
    if (optimizes && op["role"] == "forward") op["role"] = "optimize";
    if (limit) {
      op["role"] = "optimize";
      limits.push_back(op);
      continue;
    }
    if (op["type"] == "reduce_sum" && op["role"] == "optimize" && !limits.empty()) {
      for (Json& made : limits) ops.push_back(made);
      limits.clear();
    }
    ops.push_back(op);
  }
  main_ops(golden) = std::move(ops);
  for (size_t i = 1; i < golden["main"]["blocks"].size(); ++i) {
    for (Json& op : golden["main"]["blocks"][i]["ops"]) op["role"] = "optimize";
  }
}

// The loss has its role beside the scaled one.
void expect_two_losses(Json& golden) {
  std::string loss;
  for (const Json& op : main_ops(golden)) {
    if (op["role"] == "forward|loss") loss = op["inputs"]["X"][0];
  }
  for (Json& op : main_ops(golden)) {
    if (op["role"] == "forward" && makes(op, loss)) op["role"] = "forward|loss";
  }
}

void expect_ours(Json& golden) {
  expect_true_types(golden);
  expect_no_gradients_of_data(golden);
  expect_float_gradients(golden);
  expect_scaling_once_a_step(golden);
  expect_two_losses(golden);
}

// Sets in Paddle; and the rate is made behind the variables of the scaling there.
CompareOptions unordered(const Json& golden) {
  CompareOptions options;
  options.unordered.insert("startup/blocks/0/ops");
  const Json& blocks = golden["main"]["blocks"];
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t k = 0; k < blocks[i]["ops"].size(); ++k) {
      for (const char* slot : {"inputs/Input", "outputs/Out"}) {
        if (blocks[i]["ops"][k]["type"] != "conditional_block") continue;
        options.unordered.insert(str_cat("main/blocks/", i, "/ops/", k, "/", slot));
      }
    }
  }
  return options;
}

class MixedPrecisionGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(MixedPrecisionGolden, MakesTheSamePrograms) {
  std::ifstream file(folder() / (GetParam() + ".json"));
  Json golden = Json::parse(file);
  expect_ours(golden);
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const fluid::unique_name::Guard names;
  const fluid::Variable loss = build_layers(golden);
  const auto optimizer = make_optimizer(golden);
  auto mixed = mixed_precision::decorate(*optimizer, options_of(golden["config"]["amp"]));
  const auto pairs = mixed.minimize(loss).params_grads;
  const CompareOptions options = unordered(golden);
  std::vector<std::string> differences = compare_program(golden["main"], main, "main", options);
  for (std::string& more : compare_program(golden["startup"], startup, "startup", options)) {
    differences.push_back(std::move(more));
  }
  Json got = Json::array();
  for (const auto& [param, grad] : pairs) got.push_back({param.name(), grad.name()});
  EXPECT_EQ(golden["params_grads"], got);
  EXPECT_TRUE(differences.empty()) << differences.size() << " differences\n"
                                   << join(differences, "\n");
  EXPECT_NO_THROW(verify(main));
}

INSTANTIATE_TEST_SUITE_P(Files, MixedPrecisionGolden, ::testing::ValuesIn(files()),
                         [](const auto& given) {
                           std::string name = given.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace fleet::golden
