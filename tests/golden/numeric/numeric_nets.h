// The nets a to f of the numeric golden files, written with this library's layers. A file names its
// net by a sentence, and gives sizes and rates in `settings`.
#pragma once

#include <functional>
#include <string>

#include "fluid/layers/learning_rate_scheduler.h"
#include "fluid/program/program.h"
#include "tests/golden/numeric/numeric_support.h"

namespace fleet::fluid::golden {

// What Paddle computes, where the library departs from it.
struct NetForms {
  bool paddle_adam = false;
  layers::DecayForm decay = layers::DecayForm::kExact;
};

struct NumericNet {
  Program main;  // after minimize
  Program startup;
  std::string loss;
};

// `sentence`: the file's "net" or "description". `tensor` gives "init/<parameter>", each
// parameter's first value, and "data/<input>", whose shapes the inputs have; false when there is
// none. Throws std::runtime_error for a net that is not known.
NumericNet build_net(const std::string& sentence, const Json& settings,
                     const std::function<bool(const std::string& name, Tensor& value)>& tensor,
                     const NetForms& forms = {});

}  // namespace fleet::fluid::golden
