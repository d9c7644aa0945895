#include "fluid/data/formats/parsers/multi_slot.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/formats/parsers/number_text_impl.h"
#include "fluid/data/formats/parsers/token_index_impl.h"

namespace fleet::fluid::data {
namespace {

std::vector<SlotSpec> used_slots(const std::vector<MultiSlotField>& fields) {
  std::vector<SlotSpec> slots;
  for (const MultiSlotField& field : fields) {
    if (field.used) slots.push_back(field.slot);
  }
  if (slots.empty()) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "no slot of the text is used",
                                              .where = "MultiSlotParser",
                                              .expected = "at least one",
                                              .fix = "set MultiSlotField.used of those you need"});
  }
  return slots;
}

// What is wrong with a line. Texts are made only for lines that are shown.
enum class Fault { kNone, kCount, kEmpty, kMissing, kWidth, kValue, kLeft };

}  // namespace

// The lines of a piece of the text, written behind what a batch has.
class MultiSlotParser::Piece {
 public:
  // A piece has at most so many words.
  Piece(const MultiSlotParser& parser, std::string_view text, const text::WordIndex& index,
        RecordBatch& out)
      : allow_empty_(parser.options_.allow_empty),
        text_(text.data()),
        ends_(index.ends()),
        out_(out) {
    const size_t lines = index.lines().size();
    size_t slot = 0;
    for (const MultiSlotField& field : parser.fields_) {
      const SlotSpec& spec = field.slot;
      Target target = {.spec = &spec, .used = field.used};
      if (field.used) {
        Column& column = out.column(slot++);
        const bool ids = spec.type == SlotType::kId;
        // No more than there are words, whatever a slot's width is.
        const auto width = static_cast<size_t>(spec.width);
        const bool narrow = width > 0 && width <= index.words();
        const size_t most = narrow ? std::min(lines * width, index.words()) : index.words();
        target.one_id = ids && spec.width <= 1;
        if (ids) target.ids = column.ids.room(most);
        if (!ids) target.floats = column.floats.room(most);
        if (spec.width == 0) target.ends = column.ends.room(lines);
        target.before = ids ? column.ids.size() : column.floats.size();
      }
      targets_.push_back(target);
    }
  }

  bool parse(const text::IndexedLine& line) {
    uint32_t next = line.first;
    uint32_t at = line.begin;
    fault_ = Fault::kNone;
    for (Target& target : targets_) {
      if (take_one(target, line, next, at)) continue;
      if (!take_count(target, line, next, at)) return fail(target);
      if (!target.used) {
        next += static_cast<uint32_t>(count_);
        at = ends_[static_cast<int64_t>(next) - 1] + 1;
        continue;
      }
      const bool good =
          target.ids != nullptr
              ? take_values<text::parse_id>(target.ids + target.values, next, at)
              : take_values<text::parse_float>(target.floats + target.values, next, at);
      if (!good) {
        fault_ = Fault::kValue;
        return fail(target);
      }
      target.values += count_;
      if (target.ends != nullptr) target.ends[rows_] = target.before + target.values;
    }
    left_ = line.last - next;
    if (left_ > 0) {
      fault_ = Fault::kLeft;
      return fail(targets_.back());
    }
    ++rows_;
    return true;
  }

  std::string reason() const {
    if (fault_ == Fault::kLeft) {
      return str_cat(left_, " words are left over behind the last of ", targets_.size(), " slots");
    }
    const SlotSpec& slot = *failed_->spec;
    const std::string name =
        str_cat("slot '", slot.name, "' (number ", failed_ - targets_.data() + 1, ") ");
    switch (fault_) {
      case Fault::kCount:
        return name + "has no count";
      case Fault::kEmpty:
        return name + "has a count of 0; write a padding value, or set allow_empty";
      case Fault::kMissing:
        return str_cat(name, "has a count of ", count_, ", but only ", left_,
                       " words follow in the line");
      case Fault::kWidth:
        return str_cat(name, "has a count of ", count_, ", but a width of ", slot.width);
      default:
        return str_cat(name, "has a value that is no ",
                       slot.type == SlotType::kId ? "id of 64 bits" : "float");
    }
  }

  void finish() {
    size_t slot = 0;
    for (const Target& target : targets_) {
      if (!target.used) continue;
      Column& column = out_.column(slot++);
      if (target.ids != nullptr) column.ids.grown(target.values);
      if (target.floats != nullptr) column.floats.grown(target.values);
      if (target.ends != nullptr) column.ends.grown(rows_);
    }
    out_.count(static_cast<int64_t>(rows_));
  }

 private:
  // Where a field's values go: one array of the first three, and `ends` of slots without a width.
  struct Target {
    const SlotSpec* spec = nullptr;
    bool used = false;
    bool one_id = false;  // may have one id
    uint64_t* ids = nullptr;
    float* floats = nullptr;
    uint64_t* ends = nullptr;
    size_t before = 0;  // values that the column had
    size_t values = 0;  // of this piece
  };

  // Takes back what the line has written.
  bool fail(const Target& target) {
    failed_ = &target;
    for (Target& each : targets_) {
      if (!each.used) continue;
      each.values = rows_ * static_cast<size_t>(each.spec->width);
      if (each.ends != nullptr) each.values = rows_ > 0 ? each.ends[rows_ - 1] - each.before : 0;
    }
    return false;
  }

  // "1 id", as most slots have it. Where the next one begins then depends on a prediction, not on
  // the count; false: anything else, of which nothing was taken.
  bool take_one(Target& target, const text::IndexedLine& line, uint32_t& next, uint32_t& at) const {
    if (!target.one_id || line.last - next < 2) return false;
    const uint32_t count_end = ends_[next];
    const uint32_t end = ends_[next + 1];
    if (count_end - at != 1 || text_[at] != '1') return false;
    uint64_t id = 0;
    if (!text::parse_digits(text_ + at + 2, end - at - 2, id)) return false;
    target.ids[target.values] = id;
    ++target.values;
    if (target.ends != nullptr) target.ends[rows_] = target.before + target.values;
    next += 2;
    at = end + 1;
    return true;
  }

  bool take_count(const Target& target, const text::IndexedLine& line, uint32_t& next,
                  uint32_t& at) {
    left_ = line.last - next;
    if (left_ == 0) return set(Fault::kCount);
    const char* word = word_at(at);
    const uint32_t end = ends_[next++];
    const auto size = static_cast<size_t>(text_ + end - word);
    at = end + 1;
    count_ = static_cast<unsigned char>(*word - '0');
    if (size > 1 || count_ > 9) {
      if (!text::parse_digits(word, size, count_)) return set(Fault::kCount);
    }
    if (count_ > --left_) return set(Fault::kMissing);
    if (target.spec->width > 0 && target.used) {
      return count_ == static_cast<uint64_t>(target.spec->width) || set(Fault::kWidth);
    }
    return count_ > 0 || allow_empty_ || set(Fault::kEmpty);
  }

  bool set(Fault fault) {
    fault_ = fault;
    return false;
  }

  const char* word_at(uint32_t at) const {
    const char* word = text_ + at;
    while (static_cast<unsigned char>(*word) <= ' ') ++word;
    return word;
  }

  template <auto kParse, class T>
  bool take_values(T* out, uint32_t& next, uint32_t& at) const {
    bool good = true;
    const uint32_t* end = ends_ + next;
    const uint32_t* const last = end + count_;
    uint32_t begin = at;
    for (; end < last; ++end, ++out) {
      const char* word = word_at(begin);
      T value{};
      good &= kParse(word, static_cast<size_t>(text_ + *end - word), value);
      *out = value;
      begin = *end + 1;
    }
    next += static_cast<uint32_t>(count_);
    at = begin;
    return good;
  }

  const bool allow_empty_;
  const char* const text_;
  const uint32_t* const ends_;
  RecordBatch& out_;
  std::vector<Target> targets_;
  size_t rows_ = 0;
  uint64_t count_ = 0;  // of the last slot
  uint32_t left_ = 0;   // words behind its count
  Fault fault_ = Fault::kNone;
  const Target* failed_ = nullptr;
};

MultiSlotParser::MultiSlotParser(std::vector<MultiSlotField> fields, MultiSlotOptions options)
    : fields_(std::move(fields)), options_(options), slots_(make_slots(used_slots(fields_))) {}

uint64_t MultiSlotParser::parse(std::string_view text, std::string_view /*header*/,
                                RecordBatch& out, BadLines& bad) const {
  uint64_t lines = 0;
  text::WordIndex index;
  const text::WordSeparators separators;
  text::for_each_piece(text, [&](std::string_view part) {
    index.build(part, separators);
    Piece piece(*this, part, index, out);
    for (const text::IndexedLine& line : index.lines()) {
      if (line.first < line.last && !piece.parse(line)) {
        bad.add(lines, part.substr(line.begin, line.end - line.begin),
                [&] { return piece.reason(); });
      }
      ++lines;
    }
    piece.finish();
  });
  return lines;
}

}  // namespace fleet::fluid::data
