// Where the words of a text end, found 64 bytes at a time (the first stage of Langdale and Lemire,
// "Parsing Gigabytes of JSON per Second", 2019). Parsers then read words by number, so that one
// need not wait for the length of the word before.
#pragma once

#include <bit>
#include <cstdint>
#include <immintrin.h>
#include <memory>
#include <string_view>
#include <vector>

#include "fluid/data/formats/streams/block_reader.h"

namespace fleet::fluid::data::text {

// 64 bytes of a text.
struct Bytes64 {
  __m256i low;
  __m256i high;

  explicit Bytes64(const char* p)
      : low(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
        high(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))) {}

  // A bit a byte: those for which a vector of bytes says so.
  template <class Test>
  uint64_t where(const Test& test) const {
    return static_cast<uint32_t>(_mm256_movemask_epi8(test(low))) |
           static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(test(high)))) << 32;
  }
  uint64_t where_equal(char c) const {
    const __m256i all = _mm256_set1_epi8(c);
    return where([&](__m256i bytes) { return _mm256_cmpeq_epi8(bytes, all); });
  }
};

// Words between white space (every byte up to the space), or one further separator.
class WordSeparators {
 public:
  static constexpr bool kEmptyWords = false;
  explicit WordSeparators(char further = ' ') : further_(_mm256_set1_epi8(further)) {}
  uint64_t operator()(const Bytes64& bytes) const {
    const __m256i space = _mm256_set1_epi8(' ');
    return bytes.where([&](__m256i b) {
      return _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_min_epu8(b, space), b),
                             _mm256_cmpeq_epi8(b, further_));
    });
  }

 private:
  __m256i further_;
};

// Cells between delimiters, which may be empty.
class CellSeparators {
 public:
  static constexpr bool kEmptyWords = true;
  explicit CellSeparators(char delimiter) : delimiter_(_mm256_set1_epi8(delimiter)) {}
  uint64_t operator()(const Bytes64& bytes) const {
    const __m256i line = _mm256_set1_epi8('\n');
    return bytes.where([&](__m256i b) {
      return _mm256_or_si256(_mm256_cmpeq_epi8(b, delimiter_), _mm256_cmpeq_epi8(b, line));
    });
  }

 private:
  __m256i delimiter_;
};

// A line of an indexed text.
struct IndexedLine {
  uint32_t begin = 0;
  uint32_t end = 0;    // of its line end
  uint32_t first = 0;  // word
  uint32_t last = 0;   // behind its last word
};

// Memory is used again. A text has at most kMaxText bytes and ends with a line end.
class WordIndex {
 public:
  static constexpr size_t kMaxText = size_t{1} << 31;

  // `ends()[i]`: where word i ends, which is where a separator is; where `kEmptyWords`, every
  // separator ends a word. ends()[-1] + 1 is 0.
  template <class Separators>
  void build(std::string_view text, const Separators& separators) {
    reserve(text.size());
    lines_.clear();
    uint32_t* const first_end = ends_.get() + 1;
    uint32_t* out = first_end;
    uint64_t separator_before = 1;
    IndexedLine line;
    for (size_t at = 0; at < text.size(); at += 64) {
      const Bytes64 bytes(text.data() + at);
      uint64_t inside = ~uint64_t{0};
      if (text.size() - at < 64) inside = (uint64_t{1} << (text.size() - at)) - 1;
      const uint64_t separator = separators(bytes) & inside;
      uint64_t ends = separator;
      if constexpr (!Separators::kEmptyWords) {
        ends &= ~(separator << 1 | separator_before);
        separator_before = separator >> 63;
      }
      uint64_t line_ends = bytes.where_equal('\n') & inside;
      for (; line_ends != 0; line_ends &= line_ends - 1) {
        const uint64_t up_to = line_ends ^ (line_ends - 1);
        line.end = static_cast<uint32_t>(at) + static_cast<uint32_t>(std::countr_zero(line_ends));
        line.last = static_cast<uint32_t>(out - first_end) +
                    static_cast<uint32_t>(std::popcount(ends & up_to));
        lines_.push_back(line);
        line.begin = line.end + 1;
        line.first = line.last;
      }
      out = write_positions(ends, static_cast<uint32_t>(at), out);
    }
    words_ = static_cast<size_t>(out - first_end);
  }

  const uint32_t* ends() const { return ends_.get() + 1; }
  size_t words() const { return words_; }
  const std::vector<IndexedLine>& lines() const { return lines_; }

 private:
  // Writes up to 8 positions too many, which is quicker than to stop in time.
  static uint32_t* write_positions(uint64_t bits, uint32_t base, uint32_t* out) {
    const int count = std::popcount(bits);
    for (int done = 0; done < count; done += 8) {
      for (int i = 0; i < 8; ++i) {
        out[done + i] = base + static_cast<uint32_t>(std::countr_zero(bits));
        bits &= bits - 1;
      }
    }
    return out + count;
  }

  void reserve(size_t text) {
    if (text + 64 <= capacity_) return;
    capacity_ = text + 64;
    ends_ = std::make_unique_for_overwrite<uint32_t[]>(capacity_);
    ends_[0] = ~uint32_t{0};
  }

  std::unique_ptr<uint32_t[]> ends_;
  size_t capacity_ = 0;
  size_t words_ = 0;
  std::vector<IndexedLine> lines_;
};

// Calls part(text) for pieces of whole lines that fit, with their index, into the fast caches.
template <class Part>
void for_each_piece(std::string_view text, const Part& part) {
  constexpr size_t kPieceBytes = size_t{1} << 14;
  while (!text.empty()) {
    size_t end = text.size();
    if (end > kPieceBytes) {
      end = text.rfind('\n', kPieceBytes);
      if (end == std::string_view::npos) end = text.find('\n', kPieceBytes);
      end = end == std::string_view::npos ? text.size() : end + 1;
    }
    part(text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace fleet::fluid::data::text
