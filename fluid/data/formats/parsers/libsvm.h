// libsvm text: `label [qid:n] index:value index:value ...`, a record a line; what follows a '#' is
// a comment.
#pragma once

#include "fluid/data/formats/parsers/parser.h"

namespace fleet::fluid::data {

struct LibsvmOptions {
  // 0: slots "index" (ids) and "value" (floats), sequences of what the line has. Otherwise one slot
  // "features", dense, of so many floats, 0 where the line has none; a larger index makes the line
  // bad.
  int64_t features = 0;
  bool zero_based = false;  // the first feature is 0, not 1; only of dense features
  bool qid = false;         // there is a slot "qid" (ids, dense [1]), and every line has one
};

// Slots: "label" (floats, dense [1]), "qid" where asked for, then those of the features. A line
// with a qid is bad where it is not asked for.
class LibsvmParser final : public RecordParser {
 public:
  explicit LibsvmParser(LibsvmOptions options = {});

  const Slots& slots() const override { return slots_; }
  uint64_t parse(std::string_view text, std::string_view header, RecordBatch& out,
                 BadLines& bad) const override;

 private:
  class Line;
  LibsvmOptions options_;
  Slots slots_;
};

}  // namespace fleet::fluid::data
