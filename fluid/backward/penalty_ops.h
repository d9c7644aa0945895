// Building blocks of regularizers and clips: ops on gradients, with their variables.
#pragma once

#include <string>

#include "fluid/ops/append.h"
#include "fluid/program/default_programs.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::internal {

inline Variable make_var(Block& block, std::string name, DType dtype) {
  VarDesc desc;
  desc.name = std::move(name);
  desc.dtype = dtype;
  return Variable(block, block.add_var(std::move(desc)));
}

// "square_0.tmp_0": what a layer of that type would call its result.
inline Variable make_result(Block& block, const std::string& layer, DType dtype) {
  const std::string key = unique_name::generate(layer) + ".tmp";
  return make_var(block, unique_name::generate(key), dtype);
}

inline void append_simple(Block& block, std::string type, SlotMap inputs, SlotMap outputs,
                          AttributeMap attrs = {}) {
  Operator op;
  op.type = std::move(type);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = std::move(attrs);
  append_op(block, std::move(op));
}

}  // namespace fleet::fluid::internal
