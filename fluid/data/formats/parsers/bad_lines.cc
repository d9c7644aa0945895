#include "fluid/data/formats/parsers/bad_lines.h"

#include <array>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::data {

void BadLines::clear() {
  count_ = 0;
  kept_.clear();
}

std::string BadLines::excerpt(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const bool cut = text.size() > kExcerptBytes;
  std::string out;
  for (const char c : text.substr(0, kExcerptBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte > 0x7E) {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      out += c;
    }
  }
  return cut ? out + "..." : out;
}

std::string BadLine::to_string() const {
  return str_cat("file ", file, " line ", line, ": ", reason, ": '", excerpt, "'");
}

void BadLineLog::take(const std::string& file, uint64_t first_line, const BadLines& lines) {
  count_ += lines.count();
  for (const BadLines::Kept& kept : lines.kept()) {
    if (first_.size() == BadLines::kKept) break;
    first_.push_back({file, first_line + kept.line, kept.reason, kept.excerpt});
  }
  if (count_ <= max_bad_lines_) return;
  std::string others;
  for (size_t i = 1; i < first_.size(); ++i) others += "; " + first_[i].to_string();
  const BadLine& first = first_.front();
  throw_error(ErrorCode::kCorruptFile,
              {.what = max_bad_lines_ == 0
                           ? "a line of data cannot be read"
                           : str_cat("more than ", max_bad_lines_, " lines of data cannot be read"),
               .where = str_cat("file ", first.file, " line ", first.line),
               .expected = "lines of the format and the slots that the reader was given",
               .got = str_cat(first.reason, ": '", first.excerpt, "'", others),
               .fix = "mend the lines, correct the slots or the format, or raise max_bad_lines"});
}

}  // namespace fleet::fluid::data
