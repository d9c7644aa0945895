// Arithmetic on variables. A number makes a `scale`, where the operation allows it; two variables
// an elementwise op, the right one broadcast. Results are called "tmp_0", "tmp_1", ….
#pragma once

#include "fluid/program/variable.h"

namespace fleet::fluid {

Variable operator+(const Variable& x, const Variable& y);
Variable operator-(const Variable& x, const Variable& y);
Variable operator*(const Variable& x, const Variable& y);
Variable operator/(const Variable& x, const Variable& y);

Variable operator+(const Variable& x, double y);
Variable operator-(const Variable& x, double y);
Variable operator*(const Variable& x, double y);
Variable operator/(const Variable& x, double y);

Variable operator+(double x, const Variable& y);
Variable operator-(double x, const Variable& y);
Variable operator*(double x, const Variable& y);
// y's shape must be known.
Variable operator/(double x, const Variable& y);

Variable operator-(const Variable& x);

// Truth values, element by element (layers::equal and not_equal for the other two).
Variable operator<(const Variable& x, const Variable& y);
Variable operator<=(const Variable& x, const Variable& y);
Variable operator>(const Variable& x, const Variable& y);
Variable operator>=(const Variable& x, const Variable& y);

namespace layers {

// x to the power y, element by element. In the second form y's shape must be known.
Variable pow(const Variable& x, double y);
Variable pow(double x, const Variable& y);

}  // namespace layers
}  // namespace fleet::fluid
