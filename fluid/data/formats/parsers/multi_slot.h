// MultiSlot text, as Paddle's MultiSlotDataFeed reads it: a line is a record, which has for each
// slot `count v1 ... vcount`, with white space between.
#pragma once

#include <vector>

#include "fluid/data/formats/parsers/parser.h"

namespace fleet::fluid::data {

// A slot of the text, in the order of the line.
struct MultiSlotField {
  SlotSpec slot;
  bool used = true;  // those that are not are skipped
};

struct MultiSlotOptions {
  // A count of 0 is a record without values; otherwise, as with Paddle, the line is bad. Never of
  // slots that have a width.
  bool allow_empty = false;
};

// Differs from Paddle, which reads on across what is missing: a line is bad when values are
// missing, are left over or are no numbers, when an id does not fit into 64 bits or a value into a
// float, and when a slot's count is not its width. Empty lines are left out.
class MultiSlotParser final : public RecordParser {
 public:
  // At least one field is used.
  explicit MultiSlotParser(std::vector<MultiSlotField> fields, MultiSlotOptions options = {});

  const Slots& slots() const override { return slots_; }
  uint64_t parse(std::string_view text, std::string_view header, RecordBatch& out,
                 BadLines& bad) const override;

 private:
  class Piece;
  std::vector<MultiSlotField> fields_;
  MultiSlotOptions options_;
  Slots slots_;
};

}  // namespace fleet::fluid::data
