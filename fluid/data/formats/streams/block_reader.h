// A file's text in blocks of whole records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "fluid/data/formats/streams/byte_source.h"

namespace fleet::fluid::data {

// Bytes behind a text that may be read, and have no meaning.
inline constexpr size_t kTextPadding = 64;

// Memory of a block, used again.
class TextBuffer {
 public:
  std::string_view text() const { return {data_.get(), size_}; }
  char* data() { return data_.get(); }
  size_t size() const { return size_; }
  // At least so much memory beside kTextPadding; what is there stays.
  void reserve(size_t bytes);
  void set_size(size_t bytes) { size_ = bytes; }
  void assign(std::string_view text);

 private:
  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

// The bytes at the front of a text that are whole records; 0 for none.
using WholeRecords = std::function<size_t(std::string_view text)>;
// Of texts whose records are lines.
size_t whole_lines(std::string_view text);

struct BlockReaderOptions {
  SourceOptions source = {};
  size_t block_bytes = size_t{1} << 18;  // of a block, about
  // A record longer than this is an error: the file has another format. It bounds the memory.
  size_t max_record_bytes = size_t{64} << 20;
  bool header = false;  // the file's first record is not part of its blocks
};

// Used by one thread at a time. What blocks there are depends on the text and the options alone.
class BlockReader {
 public:
  BlockReader(std::filesystem::path path, WholeRecords whole, BlockReaderOptions options);

  // The next block; false at the end. It ends with a line end, which is added where the file's last
  // line has none. Throws what ByteSource throws, and ResourceError (kCorruptFile) for a record
  // that is too long.
  bool next(TextBuffer& block);
  // Where the next block begins in the unpacked text.
  uint64_t offset() const { return offset_; }
  // Goes on at this offset, which offset() gave earlier, of the same file. Only before next().
  void seek(uint64_t offset);
  // The file's first record with its line end; empty without BlockReaderOptions::header.
  const std::string& header() const { return header_; }

 private:
  void read_header();
  size_t cut(TextBuffer& block);
  [[noreturn]] void refuse_record() const;

  std::filesystem::path path_;
  WholeRecords whole_;
  BlockReaderOptions options_;
  std::unique_ptr<ByteSource> source_;
  std::string header_;
  TextBuffer rest_;      // what was read behind the last block
  uint64_t offset_ = 0;  // of rest_
  bool ended_ = false;   // the source
  uint64_t added_ = 0;   // bytes at the end of rest_ that the file does not have
};

}  // namespace fleet::fluid::data
