#include "tests/golden/golden_compare.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/strings.h"
#include "fluid/ops/op_schema.h"

namespace fleet::golden {
namespace {

using fluid::Attribute;
using fluid::Block;
using fluid::BlockRef;
using fluid::Operator;
using fluid::VarDesc;

Json attribute_json(const Attribute& attribute) {
  struct Visitor {
    Json operator()(BlockRef ref) const { return {{"block", ref.index}}; }
    Json operator()(const std::vector<BlockRef>& refs) const {
      Json list = Json::array();
      for (BlockRef ref : refs) list.push_back((*this)(ref));
      return list;
    }
    Json operator()(bool value) const { return value; }
    Json operator()(int64_t value) const { return value; }
    Json operator()(double value) const { return value; }
    Json operator()(const std::string& value) const { return value; }
    Json operator()(const std::vector<int64_t>& value) const { return value; }
    Json operator()(const std::vector<double>& value) const { return value; }
    Json operator()(const std::vector<std::string>& value) const { return value; }
  };
  return std::visit(Visitor{}, attribute);
}

class Dumper {
 public:
  explicit Dumper(const fluid::Program& program) : program_(program) {}

  Json run() {
    for (int32_t i = 0; i < program_.block_count(); ++i) name_control_vars(program_.block(i));
    Json blocks = Json::array();
    for (int32_t i = 0; i < program_.block_count(); ++i) {
      blocks.push_back(block_json(program_.block(i)));
    }
    return {{"blocks", std::move(blocks)}};
  }

 private:
  void name_control_vars(const Block& block) {
    for (const auto& op : block.ops()) {
      for (const auto& names : {op->input_names(), op->output_names()}) {
        for (const std::string& name : names) {
          const VarDesc* var = block.find_var_recursive(name);
          const bool control = var != nullptr && !var->typed && name.starts_with("@DEP@");
          if (control && !renamed_.contains(name)) {
            renamed_.emplace(name, str_cat("@DEP@", renamed_.size()));
          }
        }
      }
    }
  }

  std::string shown(const std::string& name) const {
    const auto found = renamed_.find(name);
    return found == renamed_.end() ? name : found->second;
  }

  Json slots_json(const fluid::SlotMap& slots) const {
    Json json = Json::object();
    for (const auto& [slot, names] : slots) {
      Json list = Json::array();
      for (const std::string& name : names) list.push_back(name.empty() ? "@EMPTY@" : shown(name));
      json[slot] = std::move(list);
    }
    return json;
  }

  Json op_json(const Operator& op) const {
    Json attrs = Json::object();
    for (const auto& [name, value] : op.attrs) attrs[name] = attribute_json(value);
    if (op.name_scope.find("@CLIP") != std::string::npos) attrs["op_namescope"] = op.name_scope;
    Json role_var = Json::array();
    for (const std::string& name : op.role_var) role_var.push_back(shown(name));
    return {{"type", op.type},
            {"role", fluid::to_string(op.role)},
            {"role_var", std::move(role_var)},
            {"inputs", slots_json(op.inputs)},
            {"outputs", slots_json(op.outputs)},
            {"attrs", std::move(attrs)}};
  }

  Json var_json(const VarDesc& var) const {
    Json json = {{"name", shown(var.name)},
                 {"kind", fluid::var_kind_name(var.kind)},
                 {"persistable", var.persistable},
                 {"stop_gradient", var.stop_gradient},
                 {"is_parameter", var.is_parameter},
                 {"dtype", nullptr},
                 {"shape", nullptr},
                 {"lod_level", nullptr},
                 {"trainable", nullptr}};
    if (var.typed) {
      json["dtype"] = fluid::dtype_name(var.dtype);
      json["shape"] = var.shape.to_vector();
      json["lod_level"] = var.lod_level;
    }
    if (var.is_data) json["is_data"] = true;
    if (!var.is_parameter) return json;
    json["trainable"] = var.trainable;
    json["learning_rate"] = var.learning_rate;
    if (var.regularizer) {
      char text[128];
      std::snprintf(text, sizeof(text), "%s, regularization_coeff=%f",
                    var.regularizer->kind.c_str(),
                    var.regularizer->values.at("regularization_coeff"));
      json["regularizer"] = text;
    }
    return json;
  }

  Json block_json(const Block& block) const {
    Json ops = Json::array();
    for (const auto& op : block.ops()) ops.push_back(op_json(*op));
    std::map<std::string, Json> vars;
    for (const VarDesc* var : block.vars()) vars[shown(var->name)] = var_json(*var);
    Json list = Json::array();
    for (auto& [name, var] : vars) list.push_back(std::move(var));
    return {{"idx", block.index()},
            {"parent", block.parent()},
            {"forward_block_idx", block.forward_block()},
            {"ops", std::move(ops)},
            {"vars", std::move(list)}};
  }

  const fluid::Program& program_;
  std::map<std::string, std::string> renamed_;
};

void drop_empty(Json& slots) {
  for (auto slot = slots.begin(); slot != slots.end();) {
    slot = slot->empty() ? slots.erase(slot) : std::next(slot);
  }
}

void complete_attrs(Json& op) {
  const auto* schema = fluid::OpTable::standard().find(op["type"].get<std::string>());
  Json& attrs = op["attrs"];
  for (const char* name : {"dtype", "in_dtype", "out_dtype"}) {
    if (attrs.contains(name) && attrs[name] == -1) attrs[name] = "";
  }
  if (schema == nullptr || !schema->normalize) return;
  for (const auto& [name, value] : schema->normalize({})) {
    if (!attrs.contains(name)) attrs[name] = attribute_json(value);
  }
  // Ours, and without trace in what Paddle made; then a mark that it makes for itself.
  attrs.erase("paddle_form");
  attrs.erase("@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@");
}

// Whether an op clips is what its scope tells, and a number may be written in several ways.
void unify_texts(Json& attrs) {
  if (const auto scope = attrs.find("op_namescope"); scope != attrs.end()) {
    const bool clips = scope->get<std::string>().find("@CLIP") != std::string::npos;
    attrs.erase(scope);
    if (clips) attrs["op_namescope"] = true;
  }
  const auto text = attrs.find("str_value");
  if (text == attrs.end() || text->get<std::string>().empty()) return;
  *text = std::stod(text->get<std::string>());
}

// Both sides in the same form, so that what is left of a difference is a difference.
Json normalized(Json program) {
  for (Json& block : program["blocks"]) {
    for (Json& op : block["ops"]) {
      drop_empty(op["inputs"]);
      drop_empty(op["outputs"]);
      complete_attrs(op);
      unify_texts(op["attrs"]);
    }
    // By name, so that one variable too many is one difference.
    Json vars = Json::object();
    for (Json& var : block["vars"]) {
      const auto name = var["name"].get<std::string>();
      if (!var.contains("is_data")) var["is_data"] = false;
      if (!var.contains("is_distributed")) var["is_distributed"] = false;
      vars[name] = std::move(var);
    }
    block["vars"] = std::move(vars);
  }
  return program;
}

std::string shortened(const Json& json) {
  if (json.is_object() && json.contains("type") && json.contains("outputs")) {
    return str_cat("op ", json["type"].get<std::string>(), " ", json["outputs"].dump());
  }
  std::string text = json.dump();
  if (text.size() > 200) text = text.substr(0, 200) + "…";
  return text;
}

bool equal_numbers(const Json& a, const Json& b) {
  if (a.is_number_integer() && b.is_number_integer()) return a == b;
  return static_cast<float>(a.get<double>()) == static_cast<float>(b.get<double>());
}

class Comparer {
 public:
  explicit Comparer(const CompareOptions& options) : options_(options) {}

  void compare(const Json& expected, const Json& got, const std::string& path) {
    if (expected.is_null()) {
      if (matters_when_null(path) && !got.is_null()) differ(path, "null", shortened(got));
    } else if (expected.is_number() && got.is_number()) {
      if (!equal_numbers(expected, got)) differ(path, expected.dump(), got.dump());
    } else if (expected.is_object() && got.is_object()) {
      compare_objects(expected, got, path);
    } else if (expected.is_array() && got.is_array()) {
      compare_arrays(expected, got, path);
    } else if (expected != got) {
      differ(path, shortened(expected), shortened(got));
    }
  }

  std::vector<std::string> take() { return std::move(differences_); }

 private:
  // A null type, shape or level says that the variable has none.
  static bool matters_when_null(const std::string& path) {
    return path.ends_with("/dtype") || path.ends_with("/shape") || path.ends_with("/lod_level");
  }

  void differ(const std::string& path, const std::string& expected, const std::string& got) {
    differences_.push_back(str_cat(path, ": expected ", expected, ", got ", got));
  }

  void compare_objects(const Json& expected, const Json& got, const std::string& path) {
    for (const auto& [key, value] : expected.items()) {
      const std::string below = str_cat(path, "/", key);
      if (got.contains(key)) {
        compare(value, got[key], below);
      } else {
        differ(below, shortened(value), "nothing");
      }
    }
    for (const auto& [key, value] : got.items()) {
      if (!expected.contains(key)) differ(str_cat(path, "/", key), "nothing", shortened(value));
    }
  }

  // Numbers that are not whole as 32-bit values.
  static Json rounded(const Json& value) {
    if (value.is_number_float())
      return static_cast<double>(static_cast<float>(value.get<double>()));
    Json copy = value;
    if (copy.is_structured()) {
      for (Json& item : copy) item = rounded(item);
    }
    return copy;
  }

  static std::vector<Json> sorted(const Json& list) {
    const Json numbers = rounded(list);
    std::vector<Json> items(numbers.begin(), numbers.end());
    std::sort(items.begin(), items.end());
    return items;
  }

  void compare_arrays(const Json& expected, const Json& got, const std::string& path) {
    if (options_.unordered.contains(path)) {
      const std::vector<Json> a = sorted(expected);
      const std::vector<Json> b = sorted(got);
      if (a != b) differ(path, Json(a).dump(), Json(b).dump());
      return;
    }
    const size_t shared = std::min(expected.size(), got.size());
    for (size_t i = 0; i < shared; ++i) {
      const std::string below = str_cat(path, "/", i);
      const bool ops = expected[i].is_object() && expected[i].contains("type");
      if (ops && expected[i]["type"] != got[i]["type"]) {
        // From here on the lists are shifted: one difference says enough.
        differ(below, shortened(expected[i]), shortened(got[i]));
        return;
      }
      compare(expected[i], got[i], below);
    }
    for (size_t i = shared; i < expected.size(); ++i) {
      differ(str_cat(path, "/", i), shortened(expected[i]), "nothing");
    }
    for (size_t i = shared; i < got.size(); ++i) {
      differ(str_cat(path, "/", i), "nothing", shortened(got[i]));
    }
  }

  const CompareOptions& options_;
  std::vector<std::string> differences_;
};

}  // namespace

Json dump_program(const fluid::Program& program) {
  return Dumper(program).run();
}

CompareOptions compare_options(const Json& golden) {
  CompareOptions options;
  const auto fields = golden.find("order_dependent_fields");
  if (fields == golden.end()) return options;
  for (const auto& [path, kind] : fields->items()) options.unordered.insert(path);
  return options;
}

std::vector<std::string> compare_program(const Json& expected, const fluid::Program& got,
                                         const std::string& path, const CompareOptions& options) {
  return compare_json(normalized(expected), normalized(dump_program(got)), path, options);
}

std::vector<std::string> compare_json(const Json& expected, const Json& got,
                                      const std::string& path, const CompareOptions& options) {
  Comparer comparer(options);
  comparer.compare(expected, got, path);
  return comparer.take();
}

}  // namespace fleet::golden
