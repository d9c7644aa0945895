// Whether results depend on how many threads compute an op. For tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <gtest/gtest.h>

#include "base/process/tile_pool.h"
#include "base/strings.h"

namespace fleet {

// While it lives, tiles have few elements, so that small cases have several, and each Executor that
// is made has as many threads as set_threads said.
class SmallTiles {
 public:
  explicit SmallTiles(int64_t elements) { Tiles::elements = elements; }
  ~SmallTiles() {
    Tiles::elements = before_;
    unsetenv("FLEET_NUM_THREADS");
  }
  SmallTiles(const SmallTiles&) = delete;
  SmallTiles& operator=(const SmallTiles&) = delete;

  static void set_threads(int threads) { setenv("FLEET_NUM_THREADS", str_cat(threads).c_str(), 1); }

 private:
  const int64_t before_ = Tiles::elements;
};

// Computes with 1, 2 and 7 threads, and calls expect_same(what 2 or 7 gave, what one gave).
template <class Compute, class ExpectSame>
void compare_thread_counts(const Compute& compute, const ExpectSame& expect_same) {
  SmallTiles::set_threads(1);
  const auto wanted = compute();
  for (const int threads : {2, 7}) {
    SCOPED_TRACE(str_cat(threads, " threads"));
    SmallTiles::set_threads(threads);
    expect_same(compute(), wanted);
  }
}

}  // namespace fleet
