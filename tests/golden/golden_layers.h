// Layer functions under Paddle's names and argument names.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "tests/golden/golden_arguments.h"

namespace fleet::golden {

using Outputs = std::vector<fluid::Variable>;

// One layer of a net: its inputs by argument, its arguments.
struct Call {
  std::map<std::string, std::vector<fluid::Variable>>& inputs;
  Arguments& args;
  // Calls a function that the file describes with these variables.
  std::function<Outputs(const Json& function, const Outputs& given)> call_function;

  bool has(const std::string& name) const { return inputs.contains(name); }
  const fluid::Variable& in(const std::string& name) { return all(name).front(); }
  // An empty handle when the argument is not there.
  fluid::Variable maybe(const std::string& name) {
    return has(name) ? in(name) : fluid::Variable();
  }
  // An argument that is a function: {"in": […], "layers": […], "out": […]}.
  std::function<Outputs(const Outputs&)> function(const std::string& name) {
    const Json* found = args.find(name);
    if (found == nullptr) throw NotYetKnown(str_cat(args.owner(), " without function ", name));
    return [this, found](const Outputs& given) { return call_function(*found, given); };
  }
  const std::vector<fluid::Variable>& all(const std::string& name) {
    const auto found = inputs.find(name);
    if (found == inputs.end()) throw NotYetKnown(str_cat(args.owner(), " without input ", name));
    return found->second;
  }
};

using Builder = std::function<Outputs(Call&)>;

// False, or {"ParamAttr": {…}}; null gives the usual ones.
fluid::ParamAttr make_attr(const Json* json);

// Activations, arithmetic, comparisons, losses.
void add_math_layers(std::map<std::string, Builder>& builders);
// Images, tables, sequences, sampled losses, metrics.
void add_network_layers(std::map<std::string, Builder>& builders);
// Truth values, constants, moves, arrays, recurrent nets, schedules.
void add_value_layers(std::map<std::string, Builder>& builders);

// All of them, by name.
std::map<std::string, Builder> all_builders();

}  // namespace fleet::golden
