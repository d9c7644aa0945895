#include "tests/tree/source_text.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace fleet::tree {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Walks a source once and blanks what is asked for.
class Blanker {
 public:
  Blanker(std::string_view text, bool literals_too) : out_(text), literals_too_(literals_too) {}

  std::string run() {
    while (at_ < out_.size()) step();
    return std::move(out_);
  }

 private:
  void step() {
    if (starts("//")) {
      while (at_ < out_.size() && out_[at_] != '\n') out_[at_++] = ' ';
    } else if (starts("/*")) {
      blank_until("*/", true);
    } else if (starts("R\"") && (at_ == 0 || !is_word(out_[at_ - 1]))) {
      raw_string();
    } else if (out_[at_] == '"' || (out_[at_] == '\'' && !is_digit_separator())) {
      literal(out_[at_]);
    } else {
      ++at_;
    }
  }

  bool starts(std::string_view token) const { return out_.compare(at_, token.size(), token) == 0; }
  bool is_digit_separator() const { return at_ > 0 && is_word(out_[at_ - 1]); }

  void blank(bool wanted) {
    if (wanted && out_[at_] != '\n') out_[at_] = ' ';
    ++at_;
  }

  void blank_until(std::string_view end, bool wanted) {
    while (at_ < out_.size() && !starts(end)) blank(wanted);
    for (std::size_t i = 0; i < end.size() && at_ < out_.size(); ++i) blank(wanted);
  }

  void raw_string() {
    const std::size_t open = out_.find('(', at_);
    const std::string end =
        ")" + out_.substr(at_ + 2, open == std::string::npos ? 0 : open - at_ - 2) + "\"";
    blank_until(end, literals_too_);
  }

  void literal(char quote) {
    for (++at_; at_ < out_.size() && out_[at_] != quote && out_[at_] != '\n';) {
      if (out_[at_] == '\\') blank(literals_too_);
      if (at_ < out_.size()) blank(literals_too_);
    }
    ++at_;
  }

  std::string out_;
  const bool literals_too_;
  std::size_t at_ = 0;
};

// Finds function bodies by braces: a block whose parents are all namespaces or classes, and whose
// head has parentheses and is no initialiser.
class FunctionFinder {
 public:
  explicit FunctionFinder(std::string_view text) : text_(blank_comments_and_literals(text)) {}

  std::vector<FunctionSpan> run() {
    for (at_ = 0; at_ < text_.size(); ++at_) {
      if (at_line_start() && text_[at_] == '#') skip_directive();
      if (at_ >= text_.size()) break;
      take(text_[at_]);
      if (text_[at_] == '\n') ++line_;
    }
    return std::move(functions_);
  }

 private:
  enum class Kind { kContainer, kFunction, kOther };
  struct Scope {
    Kind kind;
    bool keeps_head;  // a{1} inside a constructor's initialisers
  };

  bool at_line_start() const { return at_ == 0 || text_[at_ - 1] == '\n'; }

  void skip_directive() {
    while (at_ < text_.size() && (text_[at_] != '\n' || text_[at_ - 1] == '\\')) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
  }

  void take(char c) {
    if (c == '{') {
      open();
    } else if (c == '}') {
      close();
    } else if ((c == ';' && parentheses_ == 0) || (c == ':' && is_access_label())) {
      head_.clear();
    } else {
      if (c == '(') ++parentheses_;
      if (c == ')') --parentheses_;
      if (head_.empty() && std::isspace(static_cast<unsigned char>(c)) == 0) head_line_ = line_;
      if (!head_.empty() || std::isspace(static_cast<unsigned char>(c)) == 0) head_ += c;
    }
  }

  bool is_access_label() const {
    return head_ == "public" || head_ == "private" || head_ == "protected";
  }

  bool inside_containers_only() const {
    return std::all_of(scopes_.begin(), scopes_.end(),
                       [](const Scope& scope) { return scope.kind == Kind::kContainer; });
  }

  void open() {
    const bool initialiser =
        parentheses_ > 0 || (at_ > 0 && (is_word(text_[at_ - 1]) || text_[at_ - 1] == '>'));
    Kind kind = Kind::kOther;
    if (!initialiser && inside_containers_only()) kind = classify();
    if (kind == Kind::kFunction) {
      functions_.push_back({collapse_blanks(head_), head_line_, 0});
    }
    scopes_.push_back({kind, initialiser});
    if (!initialiser) head_.clear();
  }

  Kind classify() const {
    static const std::regex container(
        R"(^\s*(template\s*<[^{]*>\s*)?(inline\s+)?(namespace|class|struct|union|enum|extern)\b[^(]*$)");
    if (std::regex_search(head_, container)) return Kind::kContainer;
    const std::string head = collapse_blanks(head_);
    return head.find('(') != std::string::npos && !head.ends_with('=') ? Kind::kFunction
                                                                       : Kind::kOther;
  }

  void close() {
    if (scopes_.empty()) return;
    const Scope scope = scopes_.back();
    scopes_.pop_back();
    if (scope.kind == Kind::kFunction) {
      functions_.back().lines = line_ - functions_.back().first_line + 1;
    }
    if (!scope.keeps_head) head_.clear();
  }

  const std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  int parentheses_ = 0;
  int head_line_ = 1;
  std::string head_;
  std::vector<Scope> scopes_;
  std::vector<FunctionSpan> functions_;
};

// Lengths of the longest common subsequences of all suffixes.
std::vector<std::vector<int>> common_suffixes(const std::vector<std::string>& a,
                                              const std::vector<std::string>& b) {
  std::vector<std::vector<int>> length(a.size() + 1, std::vector<int>(b.size() + 1, 0));
  for (std::size_t i = a.size(); i-- > 0;) {
    for (std::size_t j = b.size(); j-- > 0;) {
      length[i][j] =
          a[i] == b[j] ? length[i + 1][j + 1] + 1 : std::max(length[i + 1][j], length[i][j + 1]);
    }
  }
  return length;
}

}  // namespace

std::string blank_comments_and_literals(std::string_view text) {
  return Blanker(text, true).run();
}
std::string blank_comments(std::string_view text) {
  return Blanker(text, false).run();
}

std::string collapse_blanks(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!blank) out += c;
    if (blank && !out.empty() && out.back() != ' ') out += ' ';
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

std::vector<FunctionSpan> find_functions(std::string_view text) {
  return FunctionFinder(text).run();
}

std::vector<IncludeLine> find_includes(std::string_view text) {
  static const std::regex pattern(R"(^\s*#\s*include\s*(["<])([^">]+)[">])");
  const std::string code = blank_comments(text);
  std::vector<IncludeLine> includes;
  int line = 0;
  for (std::size_t begin = 0; begin < code.size(); ++line) {
    const std::size_t end = std::min(code.find('\n', begin), code.size());
    const std::string row = code.substr(begin, end - begin);
    std::smatch match;
    if (std::regex_search(row, match, pattern)) {
      includes.push_back({match[2], match[1] == "\"", line + 1});
    }
    begin = end + 1;
  }
  return includes;
}

std::vector<std::string> statements(std::string_view text) {
  const std::string code = blank_comments(text);
  const std::string shape = blank_comments_and_literals(text);
  std::vector<std::string> result;
  std::string current;
  int parentheses = 0;
  const auto flush = [&] {
    if (std::string statement = collapse_blanks(current); !statement.empty()) {
      result.push_back(std::move(statement));
    }
    current.clear();
  };
  for (std::size_t i = 0; i < code.size(); ++i) {
    const bool directive = collapse_blanks(current).starts_with('#');
    if (code[i] == '\n' && directive) flush();
    current += code[i];
    if (directive) continue;
    if (shape[i] == '(') ++parentheses;
    if (shape[i] == ')') --parentheses;
    const bool end = shape[i] == ';' || shape[i] == '{' || shape[i] == '}';
    if (end && parentheses == 0) flush();
  }
  flush();
  return result;
}

StatementDiff diff_statements(const std::vector<std::string>& before,
                              const std::vector<std::string>& after) {
  const auto common = common_suffixes(before, after);
  StatementDiff diff;
  std::size_t i = 0;
  std::size_t j = 0;
  int removed_here = 0;
  int added_here = 0;
  const auto end_of_hunk = [&] {
    diff.changed_lines += std::max(removed_here, added_here);
    removed_here = added_here = 0;
  };
  while (i < before.size() || j < after.size()) {
    if (i < before.size() && j < after.size() && before[i] == after[j]) {
      end_of_hunk();
      ++i, ++j;
    } else if (j == after.size() || (i < before.size() && common[i + 1][j] >= common[i][j + 1])) {
      diff.removed.push_back(before[i++]);
      ++removed_here;
    } else {
      diff.added.push_back(after[j++]);
      ++added_here;
    }
  }
  end_of_hunk();
  return diff;
}

}  // namespace fleet::tree
