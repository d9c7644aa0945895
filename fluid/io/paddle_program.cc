#include "fluid/io/paddle_program.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/paddle_attributes.h"
#include "fluid/io/paddle_wire.h"
#include "fluid/ops/append.h"
#include "fluid/ops/paddle_form.h"

namespace fleet::fluid {
namespace {

using paddle::Bytes;
using paddle::Field;
using Fields = std::vector<Field>;

[[noreturn]] void throw_corrupt(std::string what) {
  throw_error(ErrorCode::kCorruptFile, {.what = std::move(what),
                                        .where = "a program file of Paddle",
                                        .expected = "a protobuf ProgramDesc",
                                        .got = "something else",
                                        .fix = "save the model again"});
}

Fields parse(Bytes message, const char* what) {
  auto fields = paddle::fields_of(message);
  if (!fields) throw_corrupt(str_cat(what, " is not readable"));
  return std::move(*fields);
}

const Field* find(const Fields& fields, uint32_t number, bool bytes) {
  const Field* found = nullptr;
  for (const Field& field : fields) {
    if (field.number == number && field.has_bytes == bytes) found = &field;
  }
  return found;
}

std::string text_of(const Fields& fields, uint32_t number) {
  const Field* field = find(fields, number, true);
  return field == nullptr ? std::string() : field->text();
}

int64_t number_of(const Fields& fields, uint32_t number, int64_t otherwise) {
  const Field* field = find(fields, number, false);
  return field == nullptr ? otherwise : static_cast<int64_t>(field->value);
}

// Codes of VarType.Type beyond the element types.
enum VarType : int64_t {
  kDense = 7,
  kRows = 8,
  kFeedList = 9,
  kFetchList = 10,
  kScopes = 11,
  kArray = 13,
  kRawVar = 17
};

void read_tensor(Bytes message, VarDesc& var) {
  std::vector<int64_t> dims;
  const Fields fields = parse(message, "a tensor's description");
  for (const Field& field : fields) {
    if (field.number == 2 && !paddle::append_numbers(field, dims)) {
      throw_corrupt("a tensor's dimensions are not readable");
    }
  }
  const auto dtype = paddle::dtype_of_code(static_cast<uint64_t>(number_of(fields, 1, -1)));
  // A product with the unknown -1 is unknown too.
  for (int64_t& dim : dims) dim = std::max<int64_t>(dim, Shape::kUnknown);
  if (!dtype || dims.size() > static_cast<size_t>(Shape::kMaxRank))
    throw_corrupt("a variable's type or shape is impossible");
  var.dtype = *dtype;
  var.shape = Shape(dims);
}

// A dense tensor's description and its sequence levels.
void read_lod_tensor(Bytes message, VarDesc& var) {
  const Fields fields = parse(message, "a variable's description");
  if (const Field* tensor = find(fields, 1, true)) read_tensor(tensor->bytes, var);
  var.lod_level = static_cast<int32_t>(std::clamp<int64_t>(number_of(fields, 2, 0), 0, 16));
}

// False for the lists that feed and fetch use.
bool read_var(Bytes message, VarDesc& var) {
  const Fields fields = parse(message, "a variable");
  var.name = text_of(fields, 1);
  var.persistable = number_of(fields, 3, 0) != 0;
  const Field* type = find(fields, 2, true);
  if (type == nullptr || var.name.empty()) throw_corrupt("a variable has no name or type");
  const Fields kinds = parse(type->bytes, "a variable's type");
  const auto read = [&](uint32_t number, auto reader) {
    if (const Field* field = find(kinds, number, true)) reader(field->bytes, var);
  };
  switch (number_of(kinds, 1, -1)) {
    case kDense:
      read(3, read_lod_tensor);
      return true;
    case kRows:
      var.kind = VarKind::kSelectedRows;
      read(2, read_tensor);
      return true;
    case kArray:
      var.kind = VarKind::kLodTensorArray;
      read(4, read_lod_tensor);
      return true;
    case kScopes:
      var.kind = VarKind::kStepScopes;
      var.typed = false;
      return true;
    case kFeedList:
    case kFetchList:
      return false;
    default:
      var.kind = VarKind::kRaw;
      var.typed = false;
      return true;
  }
}

SlotMap read_slots(const Fields& op, uint32_t number) {
  SlotMap slots;
  for (const Field& field : op) {
    if (field.number != number || !field.has_bytes) continue;
    const Fields slot = parse(field.bytes, "an op's slot");
    std::vector<std::string>& names = slots[text_of(slot, 1)];
    for (const Field& name : slot) {
      if (name.number != 2 || !name.has_bytes) continue;
      std::string text = name.text();
      names.push_back(text == "@EMPTY@" ? std::string() : std::move(text));
    }
  }
  std::erase_if(slots, [](const auto& slot) { return slot.second.empty(); });
  return slots;
}

template <class T, class Append>
std::vector<T> repeated(const Fields& fields, uint32_t number, Append append) {
  std::vector<T> values;
  for (const Field& field : fields) {
    if (field.number == number && !append(field, values)) {
      throw_corrupt("an attribute is not readable");
    }
  }
  return values;
}

std::vector<std::string> texts(const Fields& fields, uint32_t number) {
  return repeated<std::string>(fields, number, [](const Field& field, auto& out) {
    out.push_back(field.text());
    return field.has_bytes;
  });
}

BlockRef block_ref(int64_t index) {
  return BlockRef{static_cast<int32_t>(std::clamp<int64_t>(index, -1, 1 << 20))};
}

Attribute read_attribute(const Fields& fields) {
  const auto numbers = [&](uint32_t number) {
    return repeated<int64_t>(fields, number, paddle::append_numbers);
  };
  switch (number_of(fields, 2, -1)) {
    case 0:  // int, 32 bits
      return static_cast<int64_t>(static_cast<int32_t>(number_of(fields, 3, 0)));
    case 1: {
      const auto bits = static_cast<uint32_t>(number_of(fields, 4, 0));
      return static_cast<double>(std::bit_cast<float>(bits));
    }
    case 2:
      return text_of(fields, 5);
    case 3:
      return numbers(6);
    case 4:
      return repeated<double>(fields, 7, paddle::append_floats);
    case 5:
      return texts(fields, 8);
    case 6:
      return number_of(fields, 10, 0) != 0;
    case 7:
      return numbers(11);
    case 8:
      return block_ref(number_of(fields, 12, -1));
    case 9:
      return number_of(fields, 13, 0);
    case 10: {
      std::vector<BlockRef> blocks;
      for (const int64_t index : numbers(14)) blocks.push_back(block_ref(index));
      return blocks;
    }
    case 11:
      return numbers(15);
    default:
      throw_corrupt("an attribute has an unknown kind");
  }
}

// Element types are numbers there and names here.
Attribute with_dtype_name(const std::string& name, const Attribute& known, Attribute value) {
  const auto* code = std::get_if<int64_t>(&value);
  if (!name.ends_with("dtype") || code == nullptr || !std::holds_alternative<std::string>(known)) {
    return value;
  }
  if (*code < 0) return std::string();
  const auto dtype = paddle::dtype_of_code(static_cast<uint64_t>(*code));
  if (!dtype) throw_corrupt("an attribute names an unknown element type");
  return std::string(dtype_name(*dtype));
}

// The role is a set of flags there as here.
OpRole role_of(const Attribute& value) {
  const auto* flags = std::get_if<int64_t>(&value);
  const int64_t known = 0x1f | static_cast<int64_t>(OpRole::kLoss);
  if (flags == nullptr || (*flags & ~known) != 0) return OpRole::kForward;
  return static_cast<OpRole>(*flags);
}

void read_attributes(const Fields& fields, const OpTable& table, Operator& op) {
  const OpSchema& schema = table.at(op.type);
  const AttributeMap known = schema.normalize ? schema.normalize({}) : AttributeMap();
  for (const Field& field : fields) {
    if (field.number != 4 || !field.has_bytes) continue;
    const Fields attribute = parse(field.bytes, "an attribute");
    const std::string name = text_of(attribute, 1);
    Attribute value = read_attribute(attribute);
    const auto* list = std::get_if<std::vector<std::string>>(&value);
    const auto* text = std::get_if<std::string>(&value);
    const auto ours = known.find(name);
    if (ours != known.end()) {
      op.attrs[name] = with_dtype_name(name, ours->second, std::move(value));
    } else if (name == "op_role") {
      op.role = role_of(value);
    } else if (name == "op_role_var" && list != nullptr) {
      op.role_var = *list;
    } else if (name == "op_namescope" && text != nullptr) {
      op.name_scope = *text;
      while (op.name_scope.ends_with('/')) op.name_scope.pop_back();
    } else if (!paddle::is_neutral(name, value)) {
      throw_error(ErrorCode::kNotSupported, {.what = "an attribute that this library does not know",
                                             .where = str_cat("op '", op.type, "' of the file"),
                                             .expected = "attributes of " + op.type,
                                             .got = name + " = " + to_string(value),
                                             .fix = "save the model without it"});
    }
  }
}

class Importer {
 public:
  explicit Importer(std::shared_ptr<const ProgramOps> library) {
    model_.program.set_op_library(std::move(library));
  }

  InferenceModel run(Bytes bytes) {
    const Fields fields = parse(bytes, "the program");
    std::vector<Fields> blocks;
    for (const Field& field : fields) {
      if (field.number == 1 && field.has_bytes) blocks.push_back(parse(field.bytes, "a block"));
    }
    if (blocks.empty()) throw_corrupt("the program has no block");
    for (size_t i = 0; i < blocks.size(); ++i) add_block(blocks[i], i);
    for (size_t i = 0; i < blocks.size(); ++i) add_ops(blocks[i], static_cast<int32_t>(i));
    take_paddle_forms(model_.program);
    mark_feeds();
    verify(model_.program);
    return std::move(model_);
  }

 private:
  void add_block(const Fields& fields, size_t index) {
    const int64_t parent = static_cast<int32_t>(number_of(fields, 2, -1));
    const bool fits =
        index == 0 ? parent == -1 : parent >= 0 && parent < static_cast<int64_t>(index);
    if (!fits) throw_corrupt("a block's parent must come before it");
    Block& block = index == 0 ? model_.program.global_block()
                              : model_.program.add_block(static_cast<int32_t>(parent));
    block.set_forward_block(static_cast<int32_t>(number_of(fields, 5, -1)));
    for (const Field& field : fields) {
      if (field.number != 3 || !field.has_bytes) continue;
      VarDesc var;
      if (read_var(field.bytes, var)) block.add_var(std::move(var));
    }
  }

  void add_ops(const Fields& fields, int32_t index) {
    for (const Field& field : fields) {
      if (field.number != 4 || !field.has_bytes) continue;
      const Fields op_fields = parse(field.bytes, "an op");
      Operator op;
      op.type = text_of(op_fields, 3);
      op.inputs = read_slots(op_fields, 1);
      op.outputs = read_slots(op_fields, 2);
      if (op.type == "feed" || op.type == "fetch") {
        add_port(op, op_fields);
        continue;
      }
      read_attributes(op_fields, op_table(model_.program), op);
      model_.program.block(index).append_op(std::move(op));
    }
  }

  // `feed` and `fetch`: attribute col says at which place of the list.
  void add_port(const Operator& op, const Fields& fields) {
    int64_t col = 0;
    for (const Field& field : fields) {
      if (field.number != 4 || !field.has_bytes) continue;
      const Fields attribute = parse(field.bytes, "an attribute");
      if (text_of(attribute, 1) == "col") col = number_of(attribute, 3, 0);
    }
    const auto& names = op.type == "feed" ? op.output("Out") : op.input("X");
    if (names.size() != 1) throw_corrupt("a feed or fetch op names not one variable");
    (op.type == "feed" ? feeds_ : fetches_)[col] = names.front();
  }

  void mark_feeds() {
    Block& block = model_.program.global_block();
    for (const auto& [col, name] : feeds_) {
      VarDesc& var = block.var(name);
      var.is_data = true;
      var.stop_gradient = true;
      model_.feeds.push_back(name);
    }
    for (const auto& [col, name] : fetches_) model_.fetches.push_back(block.var(name).name);
  }

  InferenceModel model_;
  std::map<int64_t, std::string> feeds_;
  std::map<int64_t, std::string> fetches_;
};

}  // namespace

Result<InferenceModel> decode_paddle_program(std::span<const std::byte> bytes,
                                             std::shared_ptr<const ProgramOps> library) {
  try {
    return Importer(std::move(library)).run(bytes);
  } catch (const Error& error) {
    return Status(error.code(), error.text());
  }
}

}  // namespace fleet::fluid
