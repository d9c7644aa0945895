// The program files of the original system: `__model__`, a protobuf ProgramDesc.
#pragma once

#include <cstddef>
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
// variables that are fed are data variables. Attributes that only the original's own libraries
// read (use_cudnn, quantizer scales of 1, call stacks …) are dropped at their neutral values, any
// other unknown one is refused, as are unknown ops. kCorruptFile for bytes that are no program;
// kInvalidProgram, kUnknownName or kNotSupported for one that this library cannot run.
Result<InferenceModel> decode_original_program(std::span<const std::byte> bytes);

}  // namespace fleet::fluid
