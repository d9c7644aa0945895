#include "transport/session/same_bits.h"

#include <set>
#include <vector>

#include "base/strings.h"

namespace fleet::transport {

std::string differing_bits(const Hello& mine, const Hello& other) {
  std::vector<std::string> parts;
  if (mine.instruction_set != other.instruction_set) {
    parts.push_back("instruction set " + mine.instruction_set);
  }
  std::set<std::string> names;
  for (const auto* facts : {&mine.facts, &other.facts}) {
    for (const auto& [name, value] : *facts) {
      if (name.starts_with(kBitsFact)) names.insert(name);
    }
  }
  for (const std::string& name : names) {
    const auto here = mine.facts.find(name);
    const auto there = other.facts.find(name);
    const bool known = here != mine.facts.end();
    if (known && there != other.facts.end() && here->second == there->second) continue;
    parts.push_back(str_cat(name, " ", known ? here->second : "(not set)"));
  }
  return join(parts, ", ");
}

}  // namespace fleet::transport
