// Where a normal distribution has a given share below.
#pragma once

namespace fleet {

// The standard normal quantile of p in (0, 1): Wichura's algorithm AS 241 (PPND16), Applied
// Statistics 37, 1988, without its branch for p below 1.4e-11 or that near to 1; relative error
// about 1e-16. Any thread.
double normal_quantile(double p);

// Of the standard normal distribution, what lies below -2.
inline constexpr double kNormalTailBelowTwo = 0.022750131948179209;

}  // namespace fleet
