#include "fluid/tables/row_initializer.h"

#include <algorithm>

#include "base/numbers/normal_quantile.h"
#include "base/numbers/philox_words.h"
#include "base/strings.h"

namespace fleet::fluid::tables {

RowDraws::RowDraws(const TableOptions& options)
    : initializer_(options.initializer),
      probability_(options.admission.probability),
      values_(RandomKey::of(options.seed, str_cat("table/", options.name))),
      admission_(RandomKey::of(options.seed, str_cat("admission/", options.name))) {}

void RowDraws::fill(uint64_t id, std::span<float> values) const {
  const double a = initializer_.a;
  const double b = initializer_.b;
  switch (initializer_.kind) {
    case RowInitializer::Kind::kConstant:
      std::fill(values.begin(), values.end(), static_cast<float>(a));
      return;
    case RowInitializer::Kind::kUniform: {
      const auto low = static_cast<float>(a);
      const float width = static_cast<float>(b) - low;
      uniform_floats(values_, 0, id, values);
      for (float& value : values) value = low + width * value;
      return;
    }
    case RowInitializer::Kind::kNormal:
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(a + b * normal_double(values_, i, id));
      }
      return;
    case RowInitializer::Kind::kTruncatedNormal:
      for (size_t i = 0; i < values.size(); ++i) {
        const double p = kNormalTailBelowTwo +
                         (1.0 - 2.0 * kNormalTailBelowTwo) * uniform_double(values_, i, id);
        values[i] = static_cast<float>(a + b * normal_quantile(p));
      }
      return;
  }
}

bool RowDraws::admits(uint64_t id) const {
  return uniform_double(admission_, 0, id) < probability_;
}

}  // namespace fleet::fluid::tables
