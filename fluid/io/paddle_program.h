// The program files of Paddle: `__model__`, a protobuf ProgramDesc.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

// A program with what it is fed and what is fetched from it, in order.
struct InferenceModel {
  Program program;
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
};

// Blocks, variables, ops with their roles and attributes. Ops `feed` and `fetch` become the lists;
// variables that are fed are data variables. Attributes that our ops do not have are dropped where
// they change nothing (paddle_attributes.h), any other unknown one is refused, as are unknown
// ops. Dimensions below -1, products with an unknown one, are unknown. kCorruptFile for bytes that
// are no program; kInvalidProgram, kUnknownName or kNotSupported for one that this library cannot
// run. `library`: the ops that the program may use, which it is given; null: this library's.
Result<InferenceModel> decode_paddle_program(std::span<const std::byte> bytes,
                                             std::shared_ptr<const ProgramOps> library = nullptr);

}  // namespace fleet::fluid
