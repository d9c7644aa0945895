#include "fluid/data/formats/record_reader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/formats/file_list.h"

namespace fleet::fluid::data {
namespace {

// A parsed block, which is in the hands of one thread at a time.
struct Block {
  explicit Block(const Slots& slots) : batch(std::make_unique<RecordBatch>(slots)) {}

  std::unique_ptr<RecordBatch> batch;
  TextBuffer text;
  std::string header;
  BadLines bad;
  uint64_t lines = 0;
  uint64_t file = 0;
  uint64_t offset = 0;       // in the unpacked text
  uint64_t next_offset = 0;  // of what comes behind it
  bool ended = false;  // there is nothing in this block, and none will come after it in its track
  std::exception_ptr failure;
};

// Files that are read one after the other: every n-th of the list.
class Track {
 public:
  Track(uint64_t first, uint64_t step) : file_(first), step_(step) {}

  void seek(uint64_t file, uint64_t offset) {
    file_ = file;
    seek_to_ = offset;
    reader_.reset();
  }

  // Reads the next block's text.
  void read(const std::vector<std::string>& files, const RecordParser& parser,
            const BlockReaderOptions& options, Block& block) {
    for (; file_ < files.size(); file_ += step_, reader_.reset(), seek_to_.reset()) {
      block.file = file_;
      block.offset = seek_to_.value_or(0);
      if (!reader_) open(files[file_], parser, options);
      block.offset = reader_->offset();
      if (!reader_->next(block.text)) continue;
      block.next_offset = reader_->offset();
      if (block.header != reader_->header()) block.header = reader_->header();
      return;
    }
    block.file = file_;
    block.offset = 0;
    block.next_offset = 0;
    block.ended = true;
  }

  // Of this track's blocks, in order of their numbers.
  std::mutex reading;
  std::condition_variable turn;
  uint64_t next = 0;

 private:
  void open(const std::string& file, const RecordParser& parser,
            const BlockReaderOptions& options) {
    reader_ = std::make_unique<BlockReader>(
        file, [&parser](std::string_view text) { return parser.whole_records(text); }, options);
    // Where the header ends is where a file's first block begins.
    if (seek_to_ && *seek_to_ > 0) reader_->seek(*seek_to_);
  }

  uint64_t file_;
  uint64_t step_;
  std::optional<uint64_t> seek_to_;
  std::unique_ptr<BlockReader> reader_;
};

[[noreturn]] void refuse_option(std::string_view name, std::string expected, std::string got) {
  throw_error(ErrorCode::kInvalidArgument, {.what = str_cat(name, " cannot have this value"),
                                            .where = "RecordReaderOptions",
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = "change it"});
}

void check(const RecordReaderOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    refuse_option("threads", "0 to 1024", std::to_string(options.threads));
  }
  if (options.side_by_side < 1 || options.side_by_side > 1024) {
    refuse_option("side_by_side", "1 to 1024", std::to_string(options.side_by_side));
  }
  if (options.block_bytes == 0 || options.max_record_bytes == 0 ||
      options.max_record_bytes > size_t{1} << 30) {
    refuse_option("block_bytes or max_record_bytes", "1 or more, max_record_bytes at most 2^30",
                  str_cat(options.block_bytes, " and ", options.max_record_bytes));
  }
}

std::vector<std::string> in_order(std::vector<std::string> files,
                                  const std::optional<uint64_t>& seed) {
  if (!seed) return files;
  std::vector<std::string> ordered;
  for (const uint64_t i : shuffled(files.size(), *seed)) ordered.push_back(std::move(files[i]));
  return ordered;
}

}  // namespace

std::string ReaderPosition::to_string() const {
  std::string text = str_cat(block, " ", records);
  for (const OfFile& at : files) text += str_cat(" ", at.file, ":", at.offset, ":", at.line);
  return text;
}

ReaderPosition ReaderPosition::parse(const std::string& text) {
  ReaderPosition position;
  bool good = true;
  const auto number = [&](std::string_view word) {
    const auto value = parse_int(word);
    good = good && value && *value >= 0;
    return good ? static_cast<uint64_t>(*value) : 0;
  };
  const std::vector<std::string> words = split(text, ' ');
  good = words.size() >= 3;
  for (size_t i = 2; good && i < words.size(); ++i) {
    const std::vector<std::string> parts = split(words[i], ':');
    good = parts.size() == 3;
    if (good) position.files.push_back({number(parts[0]), number(parts[1]), number(parts[2])});
  }
  if (good) {
    position.block = number(words[0]);
    position.records = number(words[1]);
  }
  if (good) return position;
  throw_error(ErrorCode::kInvalidArgument, {.what = "this is no position of a reader",
                                            .where = "ReaderPosition::parse",
                                            .expected = "what to_string() gave",
                                            .got = BadLines::excerpt(text),
                                            .fix = "save the position anew"});
}

// Block b belongs to track b modulo their number. Threads take blocks by number, read each in the
// turn of its track, parse it, and put it where the caller takes blocks in order.
class RecordReader::Impl {
 public:
  Impl(std::vector<std::string> files, std::shared_ptr<const RecordParser> parser,
       RecordReaderOptions options)
      : parser_(std::move(parser)), options_(std::move(options)), log_(options_.max_bad_lines) {
    check(options_);
    files_ = in_order(std::move(files), options_.shuffle_seed);
    position_.files.resize(static_cast<size_t>(options_.side_by_side));
    for (size_t i = 0; i < position_.files.size(); ++i) position_.files[i].file = i;
    restart();
  }
  ~Impl() { end_threads(); }

  const Slots& slots() const { return parser_->slots(); }

  // The block that records come from now; null at the end.
  const RecordBatch* current() {
    while (!block_ || position_.records >= static_cast<uint64_t>(block_->batch->records())) {
      if (block_) pass();
      if (at_end()) return nullptr;
      take();
    }
    return block_->batch.get();
  }
  uint64_t at() const { return position_.records; }
  void give(uint64_t records) {
    position_.records += records;
    read_ += records;
  }
  std::unique_ptr<RecordBatch> take_batch() {
    return std::exchange(block_->batch, std::make_unique<RecordBatch>(slots()));
  }
  // The block's records were all given.
  void pass() {
    finish_block();
    recycle(std::move(block_));
  }

  const ReaderPosition& position() const { return position_; }
  void seek(const ReaderPosition& position) {
    check(position);
    end_threads();
    position_ = position;
    block_.reset();
    failure_ = nullptr;
    read_ = 0;
    log_ = BadLineLog(options_.max_bad_lines);
    restart();
    if (position_.records == 0) return;
    const uint64_t records = position_.records;
    if (at_end()) refuse(position);
    take();
    if (records > static_cast<uint64_t>(block_->batch->records())) refuse(position);
  }

  void cancel() {
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
    }
    stop_threads();
  }

  const BadLineLog& bad_lines() const { return log_; }
  uint64_t records_read() const { return read_; }

 private:
  // Holding the lock.
  void check_cancelled() const {
    if (!cancelled_) return;
    throw_error(ErrorCode::kCancelled, {.what = "reading was ended before the files' end",
                                        .where = "RecordReader",
                                        .expected = {},
                                        .got = {},
                                        .fix = "make another reader to go on"});
  }

  size_t track_of(uint64_t block) const { return block % position_.files.size(); }

  [[noreturn]] static void refuse(const ReaderPosition& position) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "the position is not of this reader",
                 .where = "RecordReader::seek",
                 .expected = "a position that was saved with the same files and options",
                 .got = position.to_string(),
                 .fix = "read the same files with the same side_by_side, or begin anew"});
  }
  void check(const ReaderPosition& position) const {
    bool good = position.files.size() == position_.files.size();
    for (size_t i = 0; good && i < position.files.size(); ++i) {
      good = position.files[i].file % position_.files.size() == i;
    }
    if (!good) refuse(position);
  }
  static void check(const RecordReaderOptions& options) { data::check(options); }

  bool at_end() const {
    for (const ReaderPosition::OfFile& at : position_.files) {
      if (at.file < files_.size()) return false;
    }
    return true;
  }

  void restart() {
    tracks_.clear();
    for (size_t i = 0; i < position_.files.size(); ++i) {
      const ReaderPosition::OfFile& at = position_.files[i];
      Track& track = tracks_.emplace_back(at.file, position_.files.size());
      track.seek(at.file, at.offset);
      // The first block of this track from position_.block on.
      const uint64_t tracks = position_.files.size();
      track.next = position_.block + (i + tracks - position_.block % tracks) % tracks;
    }
    next_ = position_.block;
    taken_ = position_.block;
    stopping_ = false;
    stop_ = std::make_unique<StopEvent>();
    const size_t ahead = 2 * static_cast<size_t>(options_.threads) + position_.files.size();
    done_.clear();
    done_.resize(ahead);
  }

  void stop_threads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    stop_->set();
    room_.notify_all();
    ready_.notify_all();
    for (Track& track : tracks_) {
      const std::lock_guard lock(track.reading);
      track.turn.notify_all();
    }
  }
  void end_threads() {
    stop_threads();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::unique_ptr<Block> fresh() {
    if (spare_.empty()) return std::make_unique<Block>(slots());
    std::unique_ptr<Block> block = std::move(spare_.back());
    spare_.pop_back();
    return block;
  }
  void recycle(std::unique_ptr<Block> block) {
    block->batch->clear();
    block->bad.clear();
    block->ended = false;
    block->failure = nullptr;
    block->lines = 0;
    const std::lock_guard lock(mutex_);
    if (spare_.size() < done_.size()) spare_.push_back(std::move(block));
  }

  void work() {
    while (true) {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [&] { return stopping_ || next_ < taken_ + done_.size(); });
      if (stopping_) return;
      const uint64_t number = next_++;
      std::unique_ptr<Block> block = fresh();
      lock.unlock();
      make(number, *block);
      lock.lock();
      done_[number % done_.size()] = std::move(block);
      ready_.notify_one();
    }
  }

  // Fills a block. What fails is told when the block's turn comes.
  void make(uint64_t number, Block& block) {
    try {
      Track& track = tracks_[track_of(number)];
      {
        std::unique_lock lock(track.reading);
        track.turn.wait(lock, [&] { return track.next == number || stopped(); });
        if (track.next != number) return;
        const struct Next {
          Track& track;
          uint64_t number;
          ~Next() {
            track.next = number;
            track.turn.notify_all();
          }
        } next{track, number + position_.files.size()};
        track.read(files_, *parser_,
                   {.source = {.pipe_command = options_.pipe_command, .stop = stop_.get()},
                    .block_bytes = options_.block_bytes,
                    .max_record_bytes = options_.max_record_bytes,
                    .header = parser_->has_header()},
                   block);
      }
      if (block.ended) return;
      block.lines = parser_->parse(block.text.text(), block.header, *block.batch, block.bad);
    } catch (...) {
      block.failure = std::current_exception();
    }
  }
  bool stopped() {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }

  // The next block, in its turn. Its place becomes free when it was.
  void take() {
    if (failure_) std::rethrow_exception(failure_);
    if (options_.threads == 0) {
      {
        const std::lock_guard lock(mutex_);
        check_cancelled();
      }
      block_ = fresh();
      make(position_.block, *block_);
      next_ = taken_ = position_.block + 1;
    } else {
      // Not before: seek() may come first.
      while (static_cast<int>(threads_.size()) < options_.threads) {
        threads_.emplace_back([this] { work(); });
      }
      std::unique_lock lock(mutex_);
      auto& place = done_[position_.block % done_.size()];
      ready_.wait(lock, [&] { return place != nullptr || cancelled_; });
      check_cancelled();
      block_ = std::move(place);
      taken_ = position_.block + 1;
      room_.notify_all();
    }
    ReaderPosition::OfFile& at = position_.files[track_of(position_.block)];
    if (block_->file != at.file) at.line = 1;
    at.file = block_->file;
    at.offset = block_->offset;
    failure_ = block_->failure;
    if (!failure_ && !block_->ended) {
      const std::string& header = block_->header;
      if (at.line == 1) at.line += std::count(header.begin(), header.end(), '\n');
      try {
        log_.take(files_[at.file], at.line, block_->bad);
      } catch (...) {
        failure_ = std::current_exception();
      }
    }
    if (!failure_) return;
    block_.reset();
    std::rethrow_exception(failure_);
  }

  void finish_block() {
    ReaderPosition::OfFile& at = position_.files[track_of(position_.block)];
    at.offset = block_->next_offset;
    at.line += block_->lines;
    ++position_.block;
    position_.records = 0;
  }

  std::vector<std::string> files_;
  std::shared_ptr<const RecordParser> parser_;
  RecordReaderOptions options_;
  BadLineLog log_;
  ReaderPosition position_;
  std::unique_ptr<Block> block_;
  std::exception_ptr failure_;
  uint64_t read_ = 0;

  std::deque<Track> tracks_;
  std::unique_ptr<StopEvent> stop_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable room_;
  std::condition_variable ready_;
  uint64_t next_ = 0;   // block to be made
  uint64_t taken_ = 0;  // blocks that the caller took
  bool stopping_ = false;
  bool cancelled_ = false;
  std::vector<std::unique_ptr<Block>> done_;
  std::vector<std::unique_ptr<Block>> spare_;
  std::vector<std::thread> threads_;
};

RecordReader::RecordReader(std::vector<std::string> files,
                           std::shared_ptr<const RecordParser> parser, RecordReaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(files), std::move(parser), std::move(options))) {}

RecordReader::~RecordReader() = default;

const Slots& RecordReader::slots() const {
  return impl_->slots();
}

int64_t RecordReader::read(RecordBatch& out, int64_t records) {
  int64_t got = 0;
  while (got < records) {
    const RecordBatch* batch = nullptr;
    try {
      batch = impl_->current();
    } catch (...) {
      if (got == 0) throw;  // else the next call says it
    }
    if (batch == nullptr) break;
    const auto at = static_cast<int64_t>(impl_->at());
    const int64_t end = std::min(batch->records(), at + records - got);
    out.append({batch, at, end});
    impl_->give(static_cast<uint64_t>(end - at));
    got += end - at;
  }
  return got;
}

std::vector<Tensor> RecordReader::next(int64_t records) {
  RecordBatch batch(slots());
  if (read(batch, records) == 0) return {};
  const RecordRange all{&batch, 0, batch.records()};
  return tensors_of({&all, 1});
}

std::unique_ptr<RecordBatch> RecordReader::next_block() {
  const RecordBatch* batch = impl_->current();
  if (batch == nullptr) return nullptr;
  const auto at = static_cast<int64_t>(impl_->at());
  const int64_t end = batch->records();
  std::unique_ptr<RecordBatch> block;
  if (at > 0) {
    block = std::make_unique<RecordBatch>(slots());
    block->append({batch, at, end});
  } else {
    block = impl_->take_batch();
  }
  impl_->give(static_cast<uint64_t>(end - at));
  impl_->pass();
  return block;
}

ReaderPosition RecordReader::position() const {
  return impl_->position();
}

void RecordReader::seek(const ReaderPosition& position) {
  impl_->seek(position);
}

void RecordReader::cancel() {
  impl_->cancel();
}

const BadLineLog& RecordReader::bad_lines() const {
  return impl_->bad_lines();
}

uint64_t RecordReader::records_read() const {
  return impl_->records_read();
}

}  // namespace fleet::fluid::data
