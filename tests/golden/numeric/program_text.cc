#include "tests/golden/numeric/program_text.h"

#include "base/strings.h"

namespace fleet::fluid::golden {
namespace {

std::string text_of(Attribute value) {
  if (const auto* number = std::get_if<double>(&value)) {
    value = static_cast<double>(static_cast<float>(*number));
  }
  return to_string(value);
}

std::string slot_text(const SlotMap& slots) {
  std::string text;
  for (const auto& [slot, names] : slots) {
    if (!names.empty()) text += str_cat(" ", slot, "=", join(names, ","));
  }
  return text;
}

std::string full_text(const Operator& op) {
  AttributeMap named = OpTable::standard().at(op.type).normalize({});
  named.erase("sub_block");
  return op_text(op, named);
}

}  // namespace

std::string op_text(const Operator& op, const AttributeMap& named) {
  const AttributeMap attrs = OpTable::standard().at(op.type).normalize(op.attrs);
  std::string text = str_cat(op.type, slot_text(op.inputs), " ->", slot_text(op.outputs), " |");
  for (const auto& [name, value] : attrs) {
    if (named.contains(name)) text += str_cat(" ", name, "=", text_of(value));
  }
  return text;
}

std::vector<std::string> op_texts(const Block& block) {
  std::vector<std::string> texts;
  for (const auto& op : block.ops()) texts.push_back(full_text(*op));
  return texts;
}

std::vector<std::string> op_texts(const Json& ops) {
  std::vector<std::string> texts;
  for (const Json& json : ops) {
    Operator op;
    op.type = json["type"].get<std::string>();
    const OpSchema& schema = OpTable::standard().at(op.type);
    op.inputs = json["inputs"].get<SlotMap>();
    op.outputs = json["outputs"].get<SlotMap>();
    const AttributeMap known = schema.normalize({});
    for (const auto& [name, value] : json["attrs"].items()) {
      if (known.contains(name)) continue;
      texts.push_back(str_cat("op ", op.type, " has an attribute that is not known: ", name));
    }
    op.attrs = attributes(schema, json["attrs"]);
    if (known.contains("paddle_form")) op.attrs["paddle_form"] = true;
    texts.push_back(full_text(op));
  }
  return texts;
}

}  // namespace fleet::fluid::golden
