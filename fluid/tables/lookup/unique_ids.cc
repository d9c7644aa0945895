#include "fluid/tables/lookup/unique_ids.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::tables {

void UniqueIds::begin(size_t most) {
  if (most >= kFree / 2) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "too many ids in one lookup",
                                              .where = "growing table",
                                              .expected = str_cat("fewer than ", kFree / 2),
                                              .got = str_cat(most),
                                              .fix = "give smaller batches"});
  }
  ids_.clear();
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * most, 16));
  slots_.assign(slots, kFree);
  mask_ = slots - 1;
}

}  // namespace fleet::fluid::tables
