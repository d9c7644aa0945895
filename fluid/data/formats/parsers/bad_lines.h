// Lines of data that cannot be read: counted, the first few kept, skipped up to a limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fleet::fluid::data {

// Of one block of a text. Used by one thread.
class BadLines {
 public:
  struct Kept {
    uint64_t line = 0;  // in the block, from 0
    std::string reason;
    std::string excerpt;
  };
  static constexpr size_t kKept = 5;
  static constexpr size_t kExcerptBytes = 80;

  // `reason()` is a std::string; called for lines that are kept.
  template <class Reason>
  void add(uint64_t line, std::string_view text, const Reason& reason) {
    ++count_;
    if (kept_.size() < kKept) kept_.push_back({line, reason(), excerpt(text)});
  }
  void clear();
  uint64_t count() const { return count_; }
  const std::vector<Kept>& kept() const { return kept_; }

  // A line's beginning as people can read it: what is no printable ASCII is escaped.
  static std::string excerpt(std::string_view text);

 private:
  uint64_t count_ = 0;
  std::vector<Kept> kept_;
};

struct BadLine {
  std::string file;
  uint64_t line = 0;  // from 1
  std::string reason;
  std::string excerpt;

  std::string to_string() const;  // "file a.txt line 7: the label is no number: 'x\t1'"
};

// Of a whole reader, in the order of its records. Used by one thread.
class BadLineLog {
 public:
  explicit BadLineLog(uint64_t max_bad_lines) : max_bad_lines_(max_bad_lines) {}

  // Throws ResourceError (kCorruptFile) that shows the first lines when there are more than
  // max_bad_lines now.
  void take(const std::string& file, uint64_t first_line, const BadLines& lines);

  uint64_t count() const { return count_; }
  // The first BadLines::kKept.
  const std::vector<BadLine>& first() const { return first_; }

 private:
  uint64_t max_bad_lines_;
  uint64_t count_ = 0;
  std::vector<BadLine> first_;
};

}  // namespace fleet::fluid::data
