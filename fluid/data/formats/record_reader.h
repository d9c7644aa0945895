// The records of many files, in an order that depends on the files and the options alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fluid/data/formats/parsers/parser.h"
#include "fluid/data/formats/records.h"

namespace fleet::fluid::data {

struct RecordReaderOptions {
  // That read and parse; 0: the caller's own, when it asks for records. The order of records does
  // not depend on it.
  int threads = 1;
  // Files that are read side by side, block by block in turn: more than one helps threads where
  // files must be unpacked, or go through a command. 1: file after file. The order depends on it.
  int side_by_side = 1;
  // The files' order is drawn from it.
  std::optional<uint64_t> shuffle_seed = {};
  std::string pipe_command = {};  // as in SourceOptions
  // More lines than this that cannot be read are an error.
  uint64_t max_bad_lines = 100;
  size_t block_bytes = size_t{1} << 18;
  size_t max_record_bytes = size_t{64} << 20;
};

// Where a reader is: between two records. Belongs to its files, their contents and its options,
// whatever its number of threads.
struct ReaderPosition {
  struct OfFile {
    uint64_t file = 0;    // in the list
    uint64_t offset = 0;  // byte of the unpacked text
    uint64_t line = 1;
    bool operator==(const OfFile&) const = default;
  };
  std::vector<OfFile> files;  // that are read side by side
  uint64_t block = 0;         // number of the next
  uint64_t records = 0;       // of it that were given already
  bool operator==(const ReaderPosition&) const = default;

  // A line of text, and back; UsageError for any other text.
  std::string to_string() const;
  static ReaderPosition parse(const std::string& text);
};

// Used by one thread. The records before a failure are given, then every call throws it: what
// ByteSource and RecordParser throw, and ResourceError for too many bad lines.
class RecordReader {
 public:
  // Throws UsageError for options that cannot be. Files are opened when their records are needed.
  RecordReader(std::vector<std::string> files, std::shared_ptr<const RecordParser> parser,
               RecordReaderOptions options = {});
  // Ends the threads and the pipe commands, done or not.
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  const Slots& slots() const;

  // Appends the next records, at most so many; 0: there are no more.
  int64_t read(RecordBatch& out, int64_t records);
  // The next records as tensors, in the order of slots(); fewer than asked for at the end, then
  // none.
  std::vector<Tensor> next(int64_t records);
  // The rest of the records that are at hand, one block at least, without copying; null at the end.
  // The batch is the caller's.
  std::unique_ptr<RecordBatch> next_block();

  ReaderPosition position() const;
  // Goes on there, with bad_lines() counted from the begin of the block that it is in. UsageError
  // for a position that is not of these files.
  void seek(const ReaderPosition& position);

  // Any thread, for the end: a call that waits for records ends soon, with Error (kCancelled), and
  // so do those after it that need more than is at hand. Not while seek() runs.
  void cancel();

  const BadLineLog& bad_lines() const;
  uint64_t records_read() const;  // since this reader was made, or sought

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fleet::fluid::data
