#include "tests/golden/golden_program.h"

#include <algorithm>
#include <map>
#include <set>

#include "fluid/ops/op_schema.h"

namespace fleet::golden {
namespace {

using fluid::Attribute;
using fluid::Block;
using fluid::Operator;
using fluid::Program;
using fluid::VarDesc;
using nlohmann::json;
using Names = std::vector<std::string>;

// "L2Decay, regularization_coeff=0.001000"
std::optional<fluid::Penalty> load_regularizer(const json& from) {
  if (!from.is_string()) return std::nullopt;
  const auto text = from.get<std::string>();
  const auto comma = text.find(',');
  const auto equals = text.find('=');
  if (comma == std::string::npos || equals == std::string::npos) return std::nullopt;
  return fluid::Penalty{.kind = text.substr(0, comma),
                        .values = {{"regularization_coeff", std::stod(text.substr(equals + 1))}}};
}

VarDesc load_var(const json& from) {
  VarDesc var;
  var.name = from.at("name").get<std::string>();
  var.kind = fluid::parse_var_kind(from.at("kind").get<std::string>());
  var.typed = !from.at("shape").is_null();
  if (var.typed) {
    var.dtype = fluid::parse_dtype(from.at("dtype").get<std::string>());
    var.shape = fluid::Shape(from.at("shape").get<std::vector<int64_t>>());
    var.lod_level = from.at("lod_level").get<int32_t>();
  }
  const auto flag = [&from](const char* key) {
    return from.contains(key) && from.at(key).is_boolean() && from.at(key).get<bool>();
  };
  var.persistable = flag("persistable");
  var.stop_gradient = flag("stop_gradient");
  var.is_data = flag("is_data");
  var.is_parameter = flag("is_parameter");
  if (var.is_parameter) {
    var.trainable = flag("trainable");
    var.learning_rate = from.value("learning_rate", 1.0);
    var.regularizer = load_regularizer(from.value("regularizer", json()));
  }
  return var;
}

// A variable that nobody wants is "@EMPTY@" there.
Names load_names(const json& from) {
  auto names = from.get<Names>();
  for (std::string& name : names) {
    if (name == "@EMPTY@") name.clear();
  }
  return names;
}

Operator load_op(const json& from) {
  Operator op;
  op.type = from.at("type").get<std::string>();
  for (const auto& [slot, names] : from.at("inputs").items()) {
    if (!names.empty()) op.inputs[slot] = load_names(names);
  }
  for (const auto& [slot, names] : from.at("outputs").items()) {
    if (!names.empty()) op.outputs[slot] = load_names(names);
  }
  for (const auto& [name, value] : from.at("attrs").items()) {
    const bool no_dtype = name.ends_with("dtype") && value == -1;
    if (no_dtype) continue;
    if (name == "op_namescope") {
      op.name_scope = value.get<std::string>();
    } else {
      op.attrs[name] = load_attribute(value);
    }
  }
  if (!from.at("role").is_null())
    op.role = fluid::parse_op_role(from.at("role").get<std::string>());
  if (!from.at("role_var").is_null()) op.role_var = from.at("role_var").get<Names>();
  const fluid::OpSchema* schema = fluid::OpTable::standard().find(op.type);
  if (schema != nullptr && schema->normalize) {
    op.attrs = schema->normalize(op.attrs);
    // What Paddle made has Paddle's form.
    if (op.attrs.contains("paddle_form")) op.attrs["paddle_form"] = true;
  }
  return op;
}

Names order_of_use(const json& ops, const Names& first) {
  Names order = first;
  for (const json& op : ops) {
    for (const char* direction : {"inputs", "outputs"}) {
      for (const auto& [slot, names] : op.at(direction).items()) {
        for (const json& name : names) order.push_back(name.get<std::string>());
      }
    }
  }
  return order;
}

void load_block(const json& from, const Names& first, Block& block) {
  std::map<std::string, VarDesc> vars;
  for (const json& item : from.at("vars")) {
    VarDesc var = load_var(item);
    std::string name = var.name;
    vars.emplace(std::move(name), std::move(var));
  }
  for (const std::string& name : order_of_use(from.at("ops"), first)) {
    const auto found = vars.find(name);
    if (found == vars.end()) continue;
    block.add_var(std::move(found->second));
    vars.erase(found);
  }
  for (auto& [name, var] : vars) block.add_var(std::move(var));
  for (const json& op : from.at("ops")) block.append_op(load_op(op));
}

template <class T>
Attribute list_of(const json& value) {
  return value.get<std::vector<T>>();
}

Attribute load_list(const json& value) {
  bool integers = true;
  bool numbers = true;
  bool texts = true;
  bool blocks = true;
  for (const json& item : value) {
    integers = integers && item.is_number_integer();
    numbers = numbers && item.is_number();
    texts = texts && item.is_string();
    blocks = blocks && item.is_object();
  }
  if (value.empty() || integers) return list_of<int64_t>(value);
  if (numbers) return list_of<double>(value);
  if (texts) return list_of<std::string>(value);
  std::vector<fluid::BlockRef> refs;
  if (blocks) {
    for (const json& item : value) refs.push_back({item.at("block").get<int32_t>()});
  }
  return refs;
}

}  // namespace

Attribute load_attribute(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return fluid::BlockRef{value.at("block").get<int32_t>()};
  return load_list(value);
}

Names creation_order(const json& startup) {
  Names order;
  for (const json& op : startup.at("blocks").at(0).at("ops")) {
    for (const auto& [slot, names] : op.at("outputs").items()) {
      for (const json& name : names) order.push_back(name.get<std::string>());
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

Program load_program(const json& program, const Names& order) {
  Program loaded;
  for (const json& from : program.at("blocks")) {
    const auto index = from.at("idx").get<int32_t>();
    Block& block =
        index == 0 ? loaded.global_block() : loaded.add_block(from.at("parent").get<int32_t>());
    block.set_forward_block(from.at("forward_block_idx").get<int32_t>());
    load_block(from, index == 0 ? order : Names{}, block);
  }
  return loaded;
}

}  // namespace fleet::golden
