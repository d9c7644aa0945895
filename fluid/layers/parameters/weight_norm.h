// Weight normalisation: what stands in for a parameter that asks for it.
#pragma once

#include <string>

#include "fluid/layers/parameters/layer_helper.h"

namespace fleet::fluid {

// w = g v / |v| (Salimans and Kingma 2016): parameters "<name>_g" and "<name>_v", the ops of g's
// first value in the startup program, those of w in the main one; returns w. Throws UsageError for
// a dimension that the shape does not have.
Variable normalized_weight(const LayerHelper& helper, const ParamAttr& attr,
                           const std::string& name, const Shape& shape, DType dtype);

}  // namespace fleet::fluid
