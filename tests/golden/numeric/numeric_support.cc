#include "tests/golden/numeric/numeric_support.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "base/strings.h"
#include "tests/testing/paths.h"

namespace fleet::fluid::golden {
namespace {

bool is_dtype(std::string_view name) {
  return name.size() >= 5 && name.substr(name.size() - 5) == "dtype";
}

Attribute attribute(const std::string& name, const Json& value) {
  if (is_dtype(name) && value.is_number()) {
    const auto code = value.get<int64_t>();
    return code < 0 ? std::string() : std::string(dtype_name(dtype_of_code(code)));
  }
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  const bool whole = std::all_of(value.begin(), value.end(),
                                 [](const Json& item) { return item.is_number_integer(); });
  if (whole) return value.get<std::vector<int64_t>>();
  const bool texts =
      std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); });
  if (texts) return value.get<std::vector<std::string>>();
  return value.get<std::vector<double>>();
}

// Attributes of Paddle that have no counterpart here, at the value that means nothing: what
// scales quantized numbers, switches of its libraries, notes to its own shape inference.
struct NeutralAttribute {
  std::string_view op;
  std::string_view name;
  std::string value;  // as JSON
};

const std::vector<NeutralAttribute>& neutral_attributes() {
  static const std::vector<NeutralAttribute> kNeutral = {
      {"mul", "scale_x", "1.0"},
      {"mul", "scale_y", "[1.0]"},
      {"mul", "scale_out", "1.0"},
      {"mul", "force_fp32_output", "false"},
      {"matmul", "Scale_x", "1.0"},
      {"matmul", "Scale_y", "1.0"},
      {"matmul", "Scale_out", "1.0"},
      {"matmul", "force_fp32_output", "false"},
      {"conv2d", "fuse_relu_before_depthwise_conv", "false"},
      {"depthwise_conv2d", "fuse_relu_before_depthwise_conv", "false"},
      {"cos_sim", "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@", "true"},
  };
  return kNeutral;
}

// Backward ops carry the attributes of their forward ops.
bool is_neutral(std::string_view op, std::string_view name, const Json& value) {
  if (op.ends_with("_grad")) op.remove_suffix(5);
  const auto& table = neutral_attributes();
  return std::any_of(table.begin(), table.end(), [&](const NeutralAttribute& neutral) {
    return neutral.op == op && neutral.name == name && Json::parse(neutral.value) == value;
  });
}

// The lists of ops that a description has: of the program and of its sub-blocks.
std::vector<Json> op_lists(const Json& json) {
  std::vector<Json> lists;
  for (const char* key : {"ops", "sub_block_ops"}) {
    const auto found = json.find(key);
    if (found == json.end()) continue;
    for (const Json& item : *found) {
      if (item.is_array()) {
        lists.push_back(item);
      } else {
        lists.push_back(Json::array({item}));
      }
    }
  }
  return lists;
}

SlotMap slots(Block& block, const Json& json) {
  SlotMap map;
  for (const auto& [slot, names] : json.items()) {
    map[slot] = names.get<std::vector<std::string>>();
    for (const std::string& name : map[slot]) {
      if (name.empty() || block.find_var(name) != nullptr) continue;
      VarDesc var;
      var.name = name;
      block.add_var(var);
    }
  }
  return map;
}

}  // namespace

std::filesystem::path directory() {
  if (const char* given = std::getenv("FLEET_NUMERIC_GOLDEN")) return given;
  return fleet::testing::source_path("tests/golden/numeric");
}

std::vector<std::filesystem::path> cases(const std::string& family) {
  return cases_in(directory(), family);
}

std::vector<std::filesystem::path> cases_in(const std::filesystem::path& directory,
                                            const std::string& family) {
  std::vector<std::filesystem::path> found;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(directory / family, absent)) {
    const bool table = entry.path().stem() == "sparse_support";  // numeric_sparse_support_test.cc
    if (entry.path().extension() == ".json" && !table) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Json load(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

DType dtype_of_code(int64_t code) {
  switch (code) {
    case 0:
      return DType::kBool;
    case 1:
      return DType::kInt16;
    case 2:
      return DType::kInt32;
    case 3:
      return DType::kInt64;
    case 6:
      return DType::kFloat64;
    default:
      return DType::kFloat32;
  }
}

AttributeMap attributes(const OpSchema& schema, const Json& json) {
  const AttributeMap known = schema.normalize({});
  AttributeMap map;
  for (const auto& [name, value] : json.items()) {
    if (known.contains(name)) map[name] = attribute(name, value);
  }
  return map;
}

std::set<std::string> unknown_attributes(const OpSchema& schema, const Json& json) {
  const AttributeMap known = schema.normalize ? schema.normalize({}) : AttributeMap();
  std::set<std::string> unknown;
  for (const auto& [name, value] : json.items()) {
    if (known.contains(name) || is_neutral(schema.type, name, value)) continue;
    unknown.insert(str_cat(schema.type, ": ", name, " = ", value.dump()));
  }
  return unknown;
}

std::set<std::string> unknown_in(const Json& json) {
  std::set<std::string> unknown;
  const auto add = [&unknown](const std::string& type, const Json& attrs) {
    const OpSchema* schema = OpTable::standard().find(type);
    if (schema == nullptr) {
      unknown.insert(type);
    } else {
      unknown.merge(unknown_attributes(*schema, attrs));
    }
  };
  for (const Json& list : op_lists(json)) {
    for (const Json& op : list) {
      // Some families list types only.
      if (op.is_string()) add(op.get<std::string>(), Json::object());
      if (op.is_object()) add(op["type"].get<std::string>(), op.value("attrs", Json::object()));
    }
  }
  if (json.contains("op") && json["op"] != "composite") {
    add(json["op"].get<std::string>(), json.value("attrs_effective", Json::object()));
  }
  return unknown;
}

void append_ops(Block& block, const Json& ops) {
  for (const Json& json : ops) {
    Operator op;
    op.type = json["type"].get<std::string>();
    op.inputs = slots(block, json["inputs"]);
    op.outputs = slots(block, json["outputs"]);
    op.attrs = attributes(OpTable::standard().at(op.type), json["attrs"]);
    block.append_op(std::move(op));
  }
}

double element(const Tensor& tensor, int64_t i) {
  const auto at = static_cast<size_t>(i);
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return static_cast<double>(tensor.values<float>()[at]);
    case DType::kFloat64:
      return tensor.values<double>()[at];
    case DType::kInt32:
      return tensor.values<int32_t>()[at];
    case DType::kInt64:
      return static_cast<double>(tensor.values<int64_t>()[at]);
    case DType::kBool:
      return tensor.values<bool>()[at];
    default:
      return std::nan("");
  }
}

std::string difference(const Tensor& got, const Tensor& expected, double rtol) {
  if (got.numel() != expected.numel()) {
    return str_cat("shape ", got.shape(), " instead of ", expected.shape());
  }
  if (got.dtype() != expected.dtype()) {
    return str_cat(dtype_name(got.dtype()), " instead of ", dtype_name(expected.dtype()));
  }
  double largest = 0;
  double scale = 0;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double g = element(got, i);
    const double e = element(expected, i);
    if (!std::isfinite(e) || !std::isfinite(g)) {
      const bool same = (std::isnan(g) && std::isnan(e)) || g == e;
      if (!same) return str_cat("element ", i, " is ", g, " instead of ", e);
      continue;
    }
    largest = std::max(largest, std::abs(g - e));
    scale = std::max(scale, std::abs(e));
  }
  if (largest <= rtol * scale) return {};
  return str_cat("differs by ", largest, ", allowed ", rtol * scale, "; got ", got.to_string(),
                 ", expected ", expected.to_string());
}

}  // namespace fleet::fluid::golden
