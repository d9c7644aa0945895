// What turns a text into records.
#pragma once

#include <cstdint>
#include <string_view>

#include "fluid/data/formats/parsers/bad_lines.h"
#include "fluid/data/formats/records.h"
#include "fluid/data/formats/streams/block_reader.h"

namespace fleet::fluid::data {

// Immutable: any thread may call, several at once with batches of their own.
class RecordParser {
 public:
  virtual ~RecordParser() = default;

  virtual const Slots& slots() const = 0;
  // Whether a file's first record is its header.
  virtual bool has_header() const { return false; }
  // As WholeRecords.
  virtual size_t whole_records(std::string_view text) const { return whole_lines(text); }
  // Appends the records of a text of whole ones, which ends with a line end (or is empty), and
  // behind which kTextPadding bytes may be read. Lines that cannot be read are left out and added
  // to `bad`; empty ones are left out. Returns how many lines there were. `header`: that of the
  // file, with its line end. Throws only for mistakes of the header, and for want of memory.
  virtual uint64_t parse(std::string_view text, std::string_view header, RecordBatch& out,
                         BadLines& bad) const = 0;
};

}  // namespace fleet::fluid::data
