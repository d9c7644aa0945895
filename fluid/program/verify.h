// Program::verify for who asks more of each op.
#pragma once

#include <functional>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::fluid {

// An op whose names exist, with its variables: of inputs, then outputs, slot by slot; null for a
// name that is left empty.
using SeeOp = std::function<void(const Operator&, const std::vector<const VarDesc*>&)>;

// As Program::verify; tells `see` of every op of the live blocks that is in order.
Status verify(const Program& program, const SeeOp& see);

}  // namespace fleet::fluid
