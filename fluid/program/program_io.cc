// Programs as bytes and as JSON.

#include <nlohmann/json.hpp>
#include <utility>

#include "base/archive.h"
#include "base/strings.h"
#include "fluid/program/program.h"

namespace fleet::fluid {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kMagic = 0x31504c46;  // "FLP1"

// Flat forms of the program, from which both formats are made.
struct VarRecord {
  std::string name;
  std::string kind;
  std::string dtype;
  bool typed = true;
  std::vector<int64_t> shape;
  int32_t lod_level = 0;
  bool persistable = false;
  bool stop_gradient = false;
  bool is_data = false;
  bool is_parameter = false;
  bool trainable = true;
  double learning_rate = 1.0;
  std::optional<Penalty> regularizer;
  std::optional<Penalty> gradient_clip;
  bool do_model_average = true;
  std::optional<SliceInfo> slice;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(name), CEREAL_NVP(kind), CEREAL_NVP(dtype), CEREAL_NVP(typed), CEREAL_NVP(shape),
       CEREAL_NVP(lod_level), CEREAL_NVP(persistable), CEREAL_NVP(stop_gradient),
       CEREAL_NVP(is_data), CEREAL_NVP(is_parameter), CEREAL_NVP(trainable),
       CEREAL_NVP(learning_rate), CEREAL_NVP(regularizer), CEREAL_NVP(gradient_clip),
       CEREAL_NVP(do_model_average), CEREAL_NVP(slice));
  }
};

struct OpRecord {
  std::string type;
  std::map<std::string, std::vector<std::string>> inputs;
  std::map<std::string, std::vector<std::string>> outputs;
  std::map<std::string, Attribute> attrs;
  std::string role;
  std::vector<std::string> role_var;
  std::string name_scope;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(type), CEREAL_NVP(inputs), CEREAL_NVP(outputs), CEREAL_NVP(attrs),
       CEREAL_NVP(role), CEREAL_NVP(role_var), CEREAL_NVP(name_scope));
  }
};

struct BlockRecord {
  int32_t parent = -1;
  int32_t forward_block = -1;
  std::vector<VarRecord> vars;
  std::vector<OpRecord> ops;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(parent), CEREAL_NVP(forward_block), CEREAL_NVP(vars), CEREAL_NVP(ops));
  }
};

struct ProgramRecord {
  uint32_t magic = kMagic;
  uint64_t random_seed = 0;
  std::vector<BlockRecord> blocks;
  DistributionInfo distribution;

  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(magic), CEREAL_NVP(random_seed), CEREAL_NVP(blocks), CEREAL_NVP(distribution));
  }
};

VarRecord to_record(const VarDesc& var) {
  return {.name = var.name,
          .kind = std::string(var_kind_name(var.kind)),
          .dtype = std::string(dtype_name(var.dtype)),
          .typed = var.typed,
          .shape = var.shape.to_vector(),
          .lod_level = var.lod_level,
          .persistable = var.persistable,
          .stop_gradient = var.stop_gradient,
          .is_data = var.is_data,
          .is_parameter = var.is_parameter,
          .trainable = var.trainable,
          .learning_rate = var.learning_rate,
          .regularizer = var.regularizer.to_optional(),
          .gradient_clip = var.gradient_clip.to_optional(),
          .do_model_average = var.do_model_average,
          .slice = var.slice.to_optional()};
}

VarDesc from_record(VarRecord record) {
  VarDesc var;
  var.name = std::move(record.name);
  var.kind = parse_var_kind(record.kind);
  var.dtype = parse_dtype(record.dtype);
  var.typed = record.typed;
  var.shape = Shape(record.shape);
  var.lod_level = record.lod_level;
  var.persistable = record.persistable;
  var.stop_gradient = record.stop_gradient;
  var.is_data = record.is_data;
  var.is_parameter = record.is_parameter;
  var.trainable = record.trainable;
  var.learning_rate = record.learning_rate;
  var.regularizer = std::move(record.regularizer);
  var.gradient_clip = std::move(record.gradient_clip);
  var.do_model_average = record.do_model_average;
  var.slice = std::move(record.slice);
  return var;
}

ProgramRecord to_record(const Program& program) {
  ProgramRecord record;
  record.random_seed = program.random_seed();
  record.distribution = program.distribution();
  for (int32_t i = 0; i < program.block_count(); ++i) {
    const Block& block = program.block(i);
    BlockRecord& out = record.blocks.emplace_back();
    out.parent = block.parent();
    out.forward_block = block.forward_block();
    for (const VarDesc* var : block.vars_in_order()) out.vars.push_back(to_record(*var));
    for (const auto& op : block.ops()) {
      out.ops.push_back({.type = op->type,
                         .inputs = {op->inputs.begin(), op->inputs.end()},
                         .outputs = {op->outputs.begin(), op->outputs.end()},
                         .attrs = {op->attrs.begin(), op->attrs.end()},
                         .role = to_string(op->role),
                         .role_var = op->role_var,
                         .name_scope = op->name_scope});
    }
  }
  return record;
}

Status corrupt(std::string what) {
  return Status(ErrorCode::kCorruptFile, {.what = std::move(what),
                                          .where = "program",
                                          .expected = "a program written by this library",
                                          .got = {},
                                          .fix = "save the program again"});
}

Status corrupt(const ErrorText& why) {
  return corrupt(why.got.empty() ? why.what : why.what + ": " + why.got);
}

Result<Program> from_record(ProgramRecord record) {
  if (record.magic != kMagic) return corrupt("not a program, or one of another format");
  if (record.blocks.empty()) return corrupt("a program needs at least one block");
  Program program;
  program.set_random_seed(record.random_seed);
  program.distribution() = std::move(record.distribution);
  for (size_t i = 0; i < record.blocks.size(); ++i) {
    BlockRecord& source = record.blocks[i];
    if (source.parent >= static_cast<int32_t>(i) || (i > 0 && source.parent < 0)) {
      return corrupt("a block's parent must come before it");
    }
    Block& block = i == 0 ? program.global_block() : program.add_block(source.parent);
    block.set_forward_block(source.forward_block);
    for (VarRecord& var : source.vars) block.add_var(from_record(std::move(var)));
    for (OpRecord& op : source.ops) {
      block.append_op({.type = std::move(op.type),
                       .inputs = {op.inputs.begin(), op.inputs.end()},
                       .outputs = {op.outputs.begin(), op.outputs.end()},
                       .attrs = AttributeMap({op.attrs.begin(), op.attrs.end()}),
                       .role = parse_op_role(op.role),
                       .role_var = std::move(op.role_var),
                       .name_scope = std::move(op.name_scope)});
    }
  }
  return program;
}

// JSON through the records' own serialize functions.
class JsonWriter;
class JsonReader;

template <class T>
concept Record = requires(T& value, JsonWriter& writer) {
  value.serialize(writer);
};

Json attribute_json(const Attribute& attribute);

class JsonWriter {
 public:
  template <class... Pairs>
  void operator()(Pairs&&... pairs) {
    ((object_[pairs.name] = write(pairs.value)), ...);
  }
  Json take() { return std::move(object_); }

  template <class T>
  static Json write(const T& value) {
    if constexpr (Record<T>) {
      JsonWriter writer;
      const_cast<T&>(value).serialize(writer);
      return writer.take();
    } else {
      return value;
    }
  }
  static Json write(const Attribute& attribute) { return attribute_json(attribute); }
  template <class T>
  static Json write(const std::vector<T>& items) {
    Json list = Json::array();
    for (const T& item : items) list.push_back(write(item));
    return list;
  }
  template <class T>
  static Json write(const std::map<std::string, T>& items) {
    Json object = Json::object();
    for (const auto& [name, item] : items) object[name] = write(item);
    return object;
  }
  template <class T>
  static Json write(const std::optional<T>& value) {
    return value ? write(*value) : Json();
  }

 private:
  Json object_ = Json::object();
};

constexpr std::array<std::string_view, 9> kAttributeKinds = {
    "bool", "int", "float", "string", "ints", "floats", "strings", "block", "blocks"};

Json attribute_json(const Attribute& attribute) {
  return {{std::string(kAttributeKinds[attribute.index()]),
           std::visit([](const auto& value) { return JsonWriter::write(value); }, attribute)}};
}

class JsonReader {
 public:
  explicit JsonReader(const Json& object) : object_(object) {}
  template <class... Pairs>
  void operator()(Pairs&&... pairs) {
    (read(object_.at(pairs.name), pairs.value), ...);
  }

  template <class T>
  static void read(const Json& json, T& value) {
    if constexpr (Record<T>) {
      JsonReader reader(json);
      value.serialize(reader);
    } else {
      json.get_to(value);
    }
  }
  static void read(const Json& json, Attribute& attribute) {
    const auto item = json.begin();
    size_t index = 0;
    const auto try_kind = [&]<class T>(std::type_identity<T>) {
      if (kAttributeKinds[index++] != item.key()) return;
      T value{};
      read(item.value(), value);
      attribute = std::move(value);
    };
    [&]<class... Ts>(std::type_identity<std::variant<Ts...>>) {
      (try_kind(std::type_identity<Ts>{}), ...);
    }(std::type_identity<AttributeKinds>{});
  }
  template <class T>
  static void read(const Json& json, std::vector<T>& items) {
    items.clear();
    for (const Json& element : json) read(element, items.emplace_back());
  }
  template <class T>
  static void read(const Json& json, std::map<std::string, T>& items) {
    items.clear();
    for (const auto& [name, element] : json.items()) read(element, items[name]);
  }
  template <class T>
  static void read(const Json& json, std::optional<T>& value) {
    value.reset();
    if (!json.is_null()) read(json, value.emplace());
  }

 private:
  const Json& object_;
};

// Names inside a decoded program may be unknown to this build; that is a broken file, too.
template <class F>
Result<Program> guarded(F build) {
  try {
    return build();
  } catch (const Error& error) {
    return corrupt(error.text());
  } catch (const Json::exception& error) {
    return corrupt(error.what());
  }
}

}  // namespace

std::vector<std::byte> Program::to_bytes() const {
  return encode(to_record(*this));
}

Result<Program> Program::from_bytes(std::span<const std::byte> bytes) {
  return guarded([&]() -> Result<Program> {
    auto record = decode<ProgramRecord>(bytes, "program");
    if (!record.ok()) return corrupt(record.status().text());
    return from_record(std::move(record).value());
  });
}

std::string Program::to_json() const {
  return JsonWriter::write(to_record(*this)).dump(1);
}

Result<Program> Program::from_json(std::string_view text) {
  return guarded([&]() -> Result<Program> {
    ProgramRecord record;
    JsonReader::read(Json::parse(text), record);
    return from_record(std::move(record));
  });
}

}  // namespace fleet::fluid
