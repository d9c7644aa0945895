// Program::verify for who asks more of each op.
#pragma once

#include <functional>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::fluid {

// An op whose names exist, with its variables: of inputs, then outputs, slot by slot; null for a
// name that is left empty.
using SeeOp = std::function<void(const Operator&, const std::vector<const VarDesc*>&)>;

// As Program::verify; each op of the live blocks that is in order is told to what `watch` made for
// the thread that looks at it. Long programs are looked at by several; of several problems the
// first op's is named.
Status verify(const Program& program, const std::function<SeeOp()>& watch);

}  // namespace fleet::fluid
