// A server's part of a checkpoint, and what it reads of one.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/log.h"
#include "base/process/background.h"
#include "fluid/io/checkpoint_files.h"
#include "fluid/tables/table_loading.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "strategies/parameter_server/server/checkpoint/save_folders.h"

namespace fleet::strategies {

struct ServerPart {
  fluid::NamedTensors tensors;
  fluid::io::CheckpointRowsByName rows;
  fluid::io::CheckpointTables tables;
};

// Adds a value that the server keeps to its part: under the variable's own name when it is all of
// it, else as rows of it, with a name that says from which one on.
void add_to_part(const ParameterEntry& entry, const fluid::Tensor& value, ServerPart& part);

// Throws UsageError where files of a growing table do not fit the server's: other widths or states.
void check_table_form(const fluid::io::CheckpointReader& checkpoint, const std::string& name,
                      const fluid::tables::SharedTable& table, FileSystem& files);

// The checkpoint that a worker names. Throws fleet::Error where this process may not read the
// folder, or does not see that checkpoint there.
fluid::io::CheckpointReader open_source(const PartSource& source, const SaveFolders& folders,
                                        FileSystem& files);
// Of variables that the checkpoint has. Throw fleet::Error where they do not fit, or are damaged;
// `memory` gives the tensor of an entry by its number.
void check_values(const fluid::io::CheckpointReader& checkpoint,
                  const std::vector<ParameterEntry>& entries);
void read_values(const fluid::io::CheckpointReader& checkpoint,
                 const std::vector<ParameterEntry>& entries,
                 const std::function<fluid::Tensor&(uint32_t)>& memory);

// Puts the rows of the buckets that are `mine` into a growing table; throws as the others, and
// where the checkpoint lacks the table.
void read_table(const fluid::io::CheckpointReader& checkpoint, const std::string& name,
                fluid::tables::SharedTable& table, const fluid::tables::BucketFilter& mine,
                FileSystem& files);

// Writes one part at a time, in the background. Destroying it waits for those that are begun.
class ServerPartWriter {
 public:
  ServerPartWriter(SaveFolders folders, std::unique_ptr<Background> background, FileSystem& files,
                   Logger logger)
      : folders_(std::move(folders)),
        files_(files),
        logger_(std::move(logger)),
        background_(std::move(background)) {}

  // Why the part cannot be written; empty: it can. Only inside the folders, where a worker has
  // begun a checkpoint; the order's folder has no links then.
  std::string refusal(PartOrder& order) const;
  // Does not wait. What goes wrong is told in the folder, to whoever waits for the part.
  void start(const PartOrder& order, ServerPart part);

 private:
  struct Work {
    PartOrder order;
    ServerPart part;
  };
  void write_all();
  void write(const Work& work) const;

  const SaveFolders folders_;
  FileSystem& files_;
  const Logger logger_;
  std::mutex mutex_;  // guards the next two
  std::deque<Work> waiting_;
  bool writes_ = false;
  std::unique_ptr<Background> background_;
};

}  // namespace fleet::strategies
