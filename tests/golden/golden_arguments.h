// The arguments of one layer, optimizer or option of a golden file.
#pragma once

#include <set>
#include <string>

#include "base/strings.h"
#include "tests/golden/golden_net.h"

namespace fleet::golden {

// Those that nobody asked for are not yet known: finish() throws NotYetKnown for them.
class Arguments {
 public:
  Arguments(std::string owner, const Json& args) : owner_(std::move(owner)), args_(args) {}

  const Json* find(const std::string& name) {
    asked_.insert(name);
    const auto found = args_.find(name);
    return found == args_.end() || found->is_null() ? nullptr : &*found;
  }
  template <class T>
  T get(const std::string& name, T otherwise) {
    const Json* found = find(name);
    return found == nullptr ? otherwise : found->get<T>();
  }
  // Everything, for a reader of its own.
  const Json& take_all() {
    if (args_.is_object()) {
      for (const auto& [name, value] : args_.items()) asked_.insert(name);
    }
    return args_;
  }
  void finish() const {
    if (!args_.is_object()) return;
    for (const auto& [name, value] : args_.items()) {
      if (!asked_.contains(name) && !value.is_null()) {
        throw NotYetKnown(str_cat(owner_, ", argument ", name));
      }
    }
  }
  const std::string& owner() const { return owner_; }

 private:
  std::string owner_;
  const Json& args_;
  std::set<std::string> asked_;
};

// {"L2Decay": 0.001}
fluid::Penalty make_decay(const Json& json);
// {"type": "ByNorm", "args": {"clip_norm": 1.0}}; null gives nothing.
std::optional<fluid::Penalty> make_clip(const Json* json);

}  // namespace fleet::golden
