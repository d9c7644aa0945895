#include "fluid/data/formats/parsers/libsvm.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "fluid/data/formats/parsers/number_text_impl.h"
#include "fluid/data/formats/parsers/token_index_impl.h"

namespace fleet::fluid::data {
namespace {

std::vector<SlotSpec> slots_of(const LibsvmOptions& options) {
  std::vector<SlotSpec> slots = {SlotSpec::dense("label", SlotType::kFloat, {1})};
  if (options.qid) slots.push_back(SlotSpec::dense("qid", SlotType::kId, {1}));
  if (options.features != 0) {
    slots.push_back(SlotSpec::dense("features", SlotType::kFloat, {options.features}));
  } else {
    slots.push_back(SlotSpec::sparse("index", SlotType::kId));
    slots.push_back(SlotSpec::sparse("value", SlotType::kFloat));
  }
  return slots;
}

}  // namespace

// A line, whose words are separated by white space and colons.
class LibsvmParser::Line {
 public:
  Line(const LibsvmOptions& options, RecordBatch& out) : options_(options), out_(out) {}

  void set(const char* text, const uint32_t* ends, const text::IndexedLine& line) {
    text_ = text;
    ends_ = ends;
    next_ = line.first;
    last_ = line.last;
    at_ = line.begin;
  }

  // What is wrong; null when nothing is.
  const char* parse() {
    float label = 0;
    const std::string_view first = take();
    if (!text::parse_float(first.data(), first.size(), label)) return "the label is no number";
    out_.column(0).floats.push_back(label);
    if (options_.qid) {
      uint64_t qid = 0;
      if (next_ == last_ || take() != "qid" || !take_behind_colon() ||
          !text::parse_id(word_.data(), word_.size(), qid)) {
        return "the line has no qid:n behind its label";
      }
      out_.column(1).ids.push_back(qid);
    }
    return options_.features > 0 ? parse_dense() : parse_sparse();
  }

 private:
  std::string_view take() {
    const uint32_t end = ends_[next_++];
    while (static_cast<unsigned char>(text_[at_]) <= ' ') ++at_;
    word_ = {text_ + at_, end - at_};
    at_ = end + 1;
    return word_;
  }

  // The next word, when it follows a colon at once.
  bool take_behind_colon() {
    if (next_ == last_ || text_[at_ - 1] != ':') return false;
    if (static_cast<unsigned char>(text_[at_]) <= ' ' || text_[at_] == ':') return false;
    take();
    return text_[at_ - 1] != ':';
  }

  const char* take_feature(uint64_t& index, float& value) {
    const std::string_view word = take();
    if (!text::parse_digits(word.data(), word.size(), index)) {
      return word == "qid" ? "the line has a qid, which the options do not ask for"
                           : "a feature's index is no whole number";
    }
    if (!take_behind_colon() || !text::parse_float(word_.data(), word_.size(), value)) {
      return "a feature's value is missing or no number";
    }
    return nullptr;
  }

  const char* parse_sparse() {
    Column& indexes = out_.column(options_.qid ? 2 : 1);
    Column& values = out_.column(options_.qid ? 3 : 2);
    while (next_ < last_) {
      uint64_t index = 0;
      float value = 0;
      if (const char* fault = take_feature(index, value)) return fault;
      indexes.ids.push_back(index);
      values.floats.push_back(value);
    }
    indexes.ends.push_back(indexes.ids.size());
    values.ends.push_back(values.floats.size());
    return nullptr;
  }

  const char* parse_dense() {
    const auto width = static_cast<size_t>(options_.features);
    Column& features = out_.column(options_.qid ? 2 : 1);
    float* out = features.floats.room(width);
    std::fill_n(out, width, 0.0f);
    while (next_ < last_) {
      uint64_t index = 0;
      float value = 0;
      if (const char* fault = take_feature(index, value)) return fault;
      if (!options_.zero_based) --index;
      if (index >= width) return "a feature's index is not among the features";
      out[index] = value;
    }
    features.floats.grown(width);
    return nullptr;
  }

  const LibsvmOptions& options_;
  RecordBatch& out_;
  const char* text_ = nullptr;
  const uint32_t* ends_ = nullptr;
  uint32_t next_ = 0;  // word
  uint32_t last_ = 0;
  uint32_t at_ = 0;  // byte behind the last word
  std::string_view word_;
};

LibsvmParser::LibsvmParser(LibsvmOptions options)
    : options_(options), slots_(make_slots(slots_of(options))) {}

uint64_t LibsvmParser::parse(std::string_view text, std::string_view /*header*/, RecordBatch& out,
                             BadLines& bad) const {
  uint64_t lines = 0;
  text::WordIndex index;
  Line parsed(options_, out);
  const text::WordSeparators separators(':');
  text::for_each_piece(text, [&](std::string_view part) {
    index.build(part, separators);
    for (text::IndexedLine line : index.lines()) {
      const std::string_view whole = part.substr(line.begin, line.end - line.begin);
      const size_t comment = whole.find('#');
      if (comment != std::string_view::npos) {
        // Words of the comment are left out; one that it begins in ends with it.
        const auto end = line.begin + static_cast<uint32_t>(comment);
        while (line.last > line.first && index.ends()[line.last - 1] > end) --line.last;
      }
      ++lines;
      if (line.first == line.last) continue;
      parsed.set(part.data(), index.ends(), line);
      const char* fault = parsed.parse();
      if (fault == nullptr) {
        out.count(1);
      } else {
        bad.add(lines - 1, whole, [&] { return std::string(fault); });
        out.roll_back();
      }
    }
  });
  return lines;
}

}  // namespace fleet::fluid::data
