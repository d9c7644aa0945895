// The files of tables that a server is writing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "strategies/parameter_server/server/checkpoint/table_checkpoint.h"

namespace fleet::strategies {

// Writes files in turns of one piece each, so that whoever runs a turn is soon free for other work.
// One thread at a time.
class TableSaves {
 public:
  // Runs `work`, in whichever thread, then `done`. Empty: files are written whole.
  using Run = std::function<void(std::function<void()> work, std::function<void()> done)>;
  explicit TableSaves(Run run) : run_(std::move(run)) {}

  // `finish`: when the file is there or cannot be.
  void begin(uint64_t session, std::shared_ptr<TableCheckpoint> file,
             std::function<void(const Status& outcome)> finish);
  // Nobody waits for its files any more: they are not finished.
  void drop_session(uint64_t session);

 private:
  struct Save {
    uint64_t session = 0;
    std::shared_ptr<TableCheckpoint> file;
    std::function<void(const Status& outcome)> finish;
    bool more = true;  // set by turns
  };
  void take_turn(const std::shared_ptr<Save>& save);
  void end(const std::shared_ptr<Save>& save);

  Run run_;
  std::vector<std::shared_ptr<Save>> saves_;
};

}  // namespace fleet::strategies
