// One file of a server's table, written while training goes on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "fluid/core/tensor.h"
#include "fluid/io/table_files.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "strategies/parameter_server/server/state_shard.h"

namespace fleet::strategies {

// Writes those rows of a server's table that the whole table has, as of the version that begin()
// shows, piece by piece from the first row on. A row that is about to change and is not written yet
// is kept, so that memory grows with the rows that change meanwhile. An update that would have more
// than `kept_bytes` kept, such as one of all rows of a large table, writes the next pieces of the
// file itself until the rest is small enough.
class TableCheckpoint final : public VersionReader {
 public:
  struct Limits {
    size_t piece_bytes = 1024 * 1024;
    size_t kept_bytes = 32 * 1024 * 1024;
  };
  // `place` says where the file goes, as the first piece is written; it may throw.
  TableCheckpoint(const ParameterEntry& entry, std::function<std::filesystem::path()> place,
                  Limits limits);
  TableCheckpoint(const ParameterEntry& entry, std::function<std::filesystem::path()> place)
      : TableCheckpoint(entry, std::move(place), Limits()) {}

  // VersionReader
  void begin(const std::byte* value) override;
  void moved(const std::byte* value) override;
  void before_change(const std::vector<int64_t>* rows) override;
  void lost(const Status& why) override { end(why); }
  // Of a value that nothing changes while the checkpoint has it.
  void begin(fluid::Tensor value);

  // Writes the next piece, as soon as there is a version. False when that was the last one, or
  // nothing is to be written: outcome() says whether the file is there.
  bool write_piece();
  // Nobody wants the file any more.
  void drop();

  Status outcome() const;
  // Of rows kept, and of the piece that is being written.
  size_t held_bytes() const;

 private:
  // Rows of one piece as they were before they changed, in the order in which they did.
  struct Kept {
    std::vector<bool> has;  // by row of the piece
    std::vector<int64_t> rows;
    std::vector<std::byte> values;

    size_t bytes() const;
  };

  bool write_next(bool wait_for_disk);
  bool write(bool wait_for_disk);
  bool write_numbers();
  bool take_piece();
  void copy_piece(const Kept& kept, int64_t first, int64_t end);
  void end(const Status& why);
  void make_room(std::unique_lock<std::mutex>& lock, int64_t row);
  void keep(std::unique_lock<std::mutex>& lock, int64_t row);
  bool is_written(int64_t row) const { return over_ || row < next_; }
  size_t rest_bytes() const { return static_cast<size_t>(count_ - next_) * row_bytes_; }

  const ParameterEntry entry_;
  const std::function<std::filesystem::path()> place_;
  const Limits limits_;
  const int64_t count_;  // rows of the file
  const size_t row_bytes_;
  const int64_t piece_rows_;

  // Of whoever writes; taken before the other one.
  std::mutex writing_;
  std::unique_ptr<fluid::io::TableRowsWriter> file_;
  int64_t numbered_ = 0;          // rows whose numbers are written
  std::vector<std::byte> piece_;  // resized under both

  mutable std::mutex mutex_;
  std::condition_variable begun_;
  bool readable_ = false;
  bool over_ = false;
  Status outcome_;
  const std::byte* value_ = nullptr;
  fluid::Tensor pinned_;
  int64_t next_ = 0;                        // the first row that is not taken for the file
  std::unordered_map<int64_t, Kept> kept_;  // by piece
  size_t kept_bytes_ = 0;
};

}  // namespace fleet::strategies
