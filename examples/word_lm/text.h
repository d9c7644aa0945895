// A text as word numbers, cut into a part to train on and a part to test on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace word_lm {

// Words are runs of letters and single punctuation marks, in lower case. Those that the training
// part has less than `least` times are one word, number 0. The last tenth of the text tests.
struct Text {
  std::vector<int64_t> train;
  std::vector<int64_t> test;
  int64_t words = 0;  // different ones
};
Text load_text(const std::string& path, int least);

}  // namespace word_lm
