#include "fluid/data/formats/streams/block_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/display.h"
#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::data {

void TextBuffer::reserve(size_t bytes) {
  if (bytes <= capacity_) return;
  auto larger = std::make_unique_for_overwrite<char[]>(bytes + kTextPadding);
  if (size_ > 0) std::memcpy(larger.get(), data_.get(), size_);
  std::memset(larger.get() + bytes, 0, kTextPadding);
  data_ = std::move(larger);
  capacity_ = bytes;
}

void TextBuffer::assign(std::string_view text) {
  size_ = 0;
  reserve(text.size());
  if (!text.empty()) std::memcpy(data_.get(), text.data(), text.size());
  size_ = text.size();
}

size_t whole_lines(std::string_view text) {
  const size_t end = text.rfind('\n');
  return end == std::string_view::npos ? 0 : end + 1;
}

BlockReader::BlockReader(std::filesystem::path path, WholeRecords whole, BlockReaderOptions options)
    : path_(std::move(path)), whole_(std::move(whole)), options_(std::move(options)) {
  options_.block_bytes = std::clamp<size_t>(options_.block_bytes, 1, options_.max_record_bytes);
  source_ = open_source(path_, options_.source);
  if (options_.header) read_header();
}

// Fills `block` until it begins with a whole record; returns where the whole ones end. Looks at no
// more than would be read if the file were opened here, so that blocks are the same after seek().
size_t BlockReader::cut(TextBuffer& block) {
  for (size_t wanted = options_.block_bytes;; wanted *= 2) {
    if (block.size() < wanted && !ended_) {
      block.reserve(wanted + 1);
      const size_t room = wanted - block.size();
      const size_t got = source_->read({block.data() + block.size(), room});
      block.set_size(block.size() + got);
      ended_ = got < room;
    }
    if (ended_ && block.size() < wanted) {
      if (block.size() > 0 && block.text().back() != '\n') {
        block.reserve(block.size() + 1);
        block.data()[block.size()] = '\n';
        block.set_size(block.size() + 1);
        added_ = 1;
      }
      return block.size();
    }
    if (const size_t whole = whole_(block.text().substr(0, wanted)); whole > 0) return whole;
    if (wanted >= options_.max_record_bytes) refuse_record();
  }
}

bool BlockReader::next(TextBuffer& block) {
  std::swap(block, rest_);
  const size_t end = cut(block);
  rest_.assign(block.text().substr(end));
  block.set_size(end);
  offset_ += end;
  if (rest_.size() == 0) offset_ -= std::exchange(added_, 0);
  if (end > 0) return true;
  // A source says last that it failed.
  char none = 0;
  source_->read({&none, 1});
  return false;
}

void BlockReader::read_header() {
  TextBuffer block;
  const size_t end = cut(block);
  size_t first = 0;
  for (size_t line = block.text().find('\n'); line < end && first == 0;
       line = block.text().find('\n', line + 1)) {
    first = whole_(block.text().substr(0, line + 1));
  }
  if (first == 0) first = end;
  header_.assign(block.text().substr(0, first));
  rest_.assign(block.text().substr(first));
  offset_ = first;
  if (rest_.size() == 0) offset_ -= std::exchange(added_, 0);
}

void BlockReader::seek(uint64_t offset) {
  const uint64_t there = offset_ + rest_.size();
  const bool before = offset < offset_;
  if (!before && offset <= there) {
    const std::string rest(rest_.text().substr(offset - offset_));
    rest_.assign(rest.size() > added_ ? std::string_view(rest) : "");
  } else if (before || ended_ || !source_->skip(offset - there)) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "the saved position is not in the file",
                 .where = str_cat("file ", path_.string()),
                 .expected = "a position that was saved while the same file was read",
                 .got = str_cat("byte ", offset),
                 .fix = "read the file that the position belongs to, or begin anew"});
  } else {
    rest_.set_size(0);
  }
  offset_ = offset;
}

void BlockReader::refuse_record() const {
  throw_error(
      ErrorCode::kCorruptFile,
      {.what = "a line is too long for a text of records",
       .where = str_cat("file ", path_.string(), ", from byte ", offset_, " on"),
       .expected = str_cat("at most ", bytes_text(static_cast<double>(options_.max_record_bytes))),
       .got = "more bytes without an end",
       .fix = "check the file's format, or raise max_record_bytes"});
}

}  // namespace fleet::fluid::data
