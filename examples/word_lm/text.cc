#include "examples/word_lm/text.h"

#include <cctype>
#include <map>

#include "fluid/data/files.h"

namespace word_lm {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  constexpr std::string_view kMarks = ".,;:!?";
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (letter) {
      if (!inside) words.emplace_back();
      words.back().push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    } else if (kMarks.find(c) != std::string_view::npos) {
      words.emplace_back(1, c);
    }
    inside = letter;
  }
  return words;
}

}  // namespace

Text load_text(const std::string& path, int least) {
  const std::vector<std::string> words = words_of(fleet::fluid::data::read_file(path));
  const size_t split = words.size() - words.size() / 10;
  std::map<std::string, int> counts;
  for (size_t i = 0; i < split; ++i) ++counts[words[i]];
  std::map<std::string, int64_t> numbers;
  Text text;
  text.words = 1;
  for (const auto& [word, count] : counts) {
    if (count >= least) numbers[word] = text.words++;
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const auto found = numbers.find(words[i]);
    (i < split ? text.train : text.test).push_back(found == numbers.end() ? 0 : found->second);
  }
  return text;
}

}  // namespace word_lm
