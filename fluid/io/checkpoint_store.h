// A folder with the checkpoints of one job.
//
//   step-000000300/   a whole checkpoint (fluid/io/checkpoint_files.h)
//   step-000000400.JOB.tmp/   one that is being written, or was when its job ended
//   step-000000900.aside/     of a run that another one did not go on with
//   latest            the name of the newest
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/files/file_system.h"
#include "base/status.h"
#include "fluid/io/checkpoint_files.h"

namespace fleet::fluid::io {

// Which checkpoints stay when a new one is there. It does itself, whatever its step, and so does
// the newest whose values are all finite.
struct CheckpointRetention {
  int keep = 3;            // the newest; 0: all
  int64_t keep_every = 0;  // those whose step is a multiple, too; 0: none
};

// A checkpoint of the folder, by its name.
struct StoredCheckpoint {
  int64_t step = 0;
  std::filesystem::path folder;
};

// One process at a time changes a folder, but that writers of a checkpoint add their parts. The
// file system must outlive it.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path root, FileSystem& files = system_files())
      : files_(&files), root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  FileSystem& files() const { return *files_; }
  // Whole ones, the newest first; they need not be undamaged. Empty where there is no folder.
  std::vector<StoredCheckpoint> list() const;
  // What is being written, or was when its job ended, the newest first.
  std::vector<StoredCheckpoint> list_unfinished() const;
  // Of the checkpoint of a step, whether it is there or not.
  std::filesystem::path folder_of(int64_t step) const;
  // Where the parts of a checkpoint are written. `job`: the same in all its processes, and another
  // one for each.
  std::filesystem::path unfinished(int64_t step, const std::string& job) const;
  // Takes away what jobs left unfinished, of steps before this one or of all.
  void clean(std::optional<int64_t> before = std::nullopt) const;
  // Gives checkpoints of later steps other names: they are neither listed nor taken away any more.
  void set_aside(int64_t step) const;
  // Makes the parts that are in `unfinished` a checkpoint, in place of one of the same step, and
  // takes away those that need not stay, and what was left unfinished before. Throws ResourceError
  // when there is no new one; those that were there before stay then. The status says what went
  // wrong behind it.
  Status commit(const std::filesystem::path& unfinished, const CheckpointInfo& info, int parts,
                const CheckpointRetention& retention) const;

 private:
  void put(const std::filesystem::path& unfinished, int64_t step) const;
  // A folder of the root that has got another name; that survives a loss of power first.
  std::error_code remove(const std::filesystem::path& renamed) const;
  void retain(const CheckpointRetention& retention, int64_t written) const;

  FileSystem* files_;
  std::filesystem::path root_;
};

}  // namespace fleet::fluid::io
