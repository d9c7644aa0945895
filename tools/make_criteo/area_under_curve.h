// How well scores tell two kinds of examples apart.
#pragma once

#include <vector>

namespace fleet::tools {

// The area under the ROC curve: of all pairs of a positive and a negative example the share in
// which the positive one has the higher score, equal scores counting a half (Mann and Whitney's U).
// Exact, in time n log n, for up to 2^32 scores together; sorts them. 0 where there are no pairs.
double area_under_curve(std::vector<double>& positives, std::vector<double>& negatives);

}  // namespace fleet::tools
