// Builds the net of a golden file through fluid::layers, and its optimizer.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fluid/optimizer/optimizer.h"
#include "fluid/program/program.h"

namespace fleet::golden {

using Json = nlohmann::json;

// A layer, optimizer or option of the file that this library does not have.
class NotYetKnown : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The file's layers, appended to the default programs of this thread; returns the loss.
fluid::Variable build_layers(const Json& golden);

// Where the library departs from Paddle: what Paddle computes, or what the library
// does unless asked.
enum class Form { kPaddle, kOwn };

// The file's optimizer; a schedule's ops are appended to the default main program. Null when the
// file has none.
std::unique_ptr<fluid::optimizer::Optimizer> make_optimizer(const Json& golden,
                                                            Form form = Form::kPaddle);

// A number, or {"schedule": …, "args": …}, whose ops are appended to the default main program.
fluid::optimizer::LearningRate make_rate(const Json& json, Form form = Form::kPaddle);

struct BuiltNet {
  fluid::Program main_forward;  // before backward
  fluid::Program main;          // after minimize, or append_backward when there is no optimizer
  fluid::Program startup;
  std::vector<std::pair<std::string, std::string>> params_grads;
};
// All of it in programs of its own, with fresh names.
BuiltNet build_net(const Json& golden);

}  // namespace fleet::golden
