// What users do wrong, as tables: each row makes one mistake, which must be refused by an error
// that names op or layer and variable, what was expected, what came, and the fix.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "fluid/layers/layers.h"

namespace fleet::fluid::mistakes {

// What mistakes are made with, and the programs they are made in.
struct Inputs {
  Program& main;
  Program& startup;
  Variable x = layers::data("x", {4});  // [-1, 4]
  Variable y = layers::data("y", {3});  // [-1, 3]
  Variable z = layers::data("z", {2, 3, 4}, DType::kFloat32, {.append_batch_size = false});
  Variable flat = layers::data("flat", {6}, DType::kFloat32, {.append_batch_size = false});
  Variable whole = layers::data("whole", {4}, DType::kInt64);
  Variable label = layers::data("label", {1}, DType::kInt64);
  Variable column = layers::data("column", {1});
  Variable truth = layers::data("truth", {4}, DType::kBool);
  Variable image = layers::data("image", {6, 8, 8});                                // [-1, 6, 8, 8]
  Variable words = layers::data("words", {1}, DType::kInt64, {.lod_level = 1});     // [-1, 1]
  Variable steps = layers::data("steps", {12}, DType::kFloat32, {.lod_level = 1});  // [-1, 12]
};

struct Mistake {
  std::string name;
  std::function<void(const Inputs&)> make;
  ErrorCode code;
  std::vector<std::string> texts;  // of the error
};

inline constexpr ErrorCode kShape = ErrorCode::kShapeMismatch;
inline constexpr ErrorCode kType = ErrorCode::kDTypeMismatch;
inline constexpr ErrorCode kArgument = ErrorCode::kInvalidArgument;

void add_dense_mistakes(std::vector<Mistake>& all);     // dense ops
void add_network_mistakes(std::vector<Mistake>& all);   // images, tables, sequences, blocks
void add_training_mistakes(std::vector<Mistake>& all);  // losses, optimizers, schedules, programs
void add_running_mistakes(std::vector<Mistake>& all);   // feeds, fetches, values

}  // namespace fleet::fluid::mistakes
