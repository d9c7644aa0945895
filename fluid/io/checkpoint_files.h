// The files of one checkpoint of a job. Several processes write it, each a part; a manifest makes
// the parts a whole.
//
//   part-0-of-2.safetensors, part-1-of-2.safetensors   tensors: whole variables, or rows of them
//   part-0-of-2.ctr.table   rows of growing table "ctr" (fluid/tables/table_pieces.h)
//   manifest.json   CheckpointInfo; file, type, shape and checksum of each tensor, and which rows
//                   of which variable it is; files of each growing table; sizes of the files; a
//                   checksum of its own
//
// Until the manifest is there, a part's list of tensors is beside it (part-0-of-2.json), and a file
// "begun".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/io/growing_tables.h"
#include "fluid/io/safetensors.h"

namespace fleet::fluid::io {

inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kCheckpointManifest = "manifest.json";

// What a checkpoint says of the job beside its tensors. Steps are those of the whole job.
struct CheckpointInfo {
  int64_t step = 0;  // steps that are over: the number of the next one
  // Of each worker; of one that had stopped, its last one. May be empty.
  std::vector<int64_t> worker_steps = {};
  int64_t epoch = -1;    // Paddle's TrainStatus
  std::string mode;      // "local", "sync", "collective" …
  std::string program;   // a hash of what was trained
  std::string strategy;  // its options
  int workers = 1;
  int servers = 0;
  int logical_shards = 1;
  std::map<std::string, int64_t> readers;     // positions of data loaders, by name
  std::map<std::string, std::string> values;  // the user's own
  bool operator==(const CheckpointInfo&) const = default;
};

// Where rows of a variable are: row i is row first + i * stride of the variable.
struct CheckpointPiece {
  std::string file;
  std::string name;  // in the file
  int64_t first = 0;
  int64_t stride = 1;
  int64_t rows = 0;     // of a variable without dimensions: 1
  uint32_t crc32c = 0;  // of its data
  bool finite = true;
};

// Where a variable is: each of its rows in one piece.
struct CheckpointTensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<CheckpointPiece> pieces;

  bool finite() const;
  std::string files() const;  // "part-0-of-2.safetensors, part-1-of-2.safetensors"
};

// Which rows of a variable a tensor is, as in CheckpointPiece.
struct CheckpointRows {
  std::string of;
  Shape shape;  // of the variable
  int64_t first = 0;
  int64_t stride = 1;
};

// By name of the tensor; tensors that are not named are whole variables.
using CheckpointRowsByName = std::map<std::string, CheckpointRows>;

// Makes the folder of a checkpoint whose parts may be written by any process that finds it begun.
// Throws ResourceError.
void begin_checkpoint(const std::filesystem::path& folder, FileSystem& files = system_files());
bool is_checkpoint_begun(const std::filesystem::path& folder, FileSystem& files = system_files());
// Where a part has its file of a growing table.
std::filesystem::path checkpoint_table_file(const std::filesystem::path& folder,
                                            const std::string& table, int part, int parts);
// By variable; TableSave::file() is checkpoint_table_file() of the part.
using CheckpointTables = std::map<std::string, std::shared_ptr<TableSave>>;
// Part `part` of `parts`, with its list when it is whole; finishes `tables`. Throws ResourceError.
void write_checkpoint_part(const std::filesystem::path& folder, int part, int parts,
                           const NamedTensors& tensors, FileSystem& files = system_files(),
                           const CheckpointRowsByName& rows = {},
                           const CheckpointTables& tables = {});
// Takes the part away, with files of `tables` that are there, and tells whoever waits for it why it
// does not come; not an error when it cannot be told.
void give_up_checkpoint_part(const std::filesystem::path& folder, int part, int parts,
                             const std::string& why, FileSystem& files = system_files(),
                             const CheckpointTables& tables = {});
// Of parts that are not there: their numbers. Throws ResourceError with what a writer that gave up
// said.
std::vector<int> missing_checkpoint_parts(const std::filesystem::path& folder, int parts,
                                          FileSystem& files = system_files());
// All parts are there. Throws ResourceError.
void write_checkpoint_manifest(const std::filesystem::path& folder, const CheckpointInfo& info,
                               int parts, FileSystem& files = system_files());

// One whole checkpoint, read on demand. Its files are treated as hostile. Any thread. The
// file system must outlive it.
class CheckpointReader {
 public:
  // kInput when there is no manifest or file, kCorruptFile for what does not fit: the file and the
  // entry are named. Reads no tensor.
  static Result<CheckpointReader> open(const std::filesystem::path& folder,
                                       FileSystem& files = system_files());

  const std::filesystem::path& folder() const { return folder_; }
  const CheckpointInfo& info() const { return info_; }
  const std::map<std::string, CheckpointTensor>& tensors() const { return tensors_; }
  // The files of each growing table, of all parts.
  const std::map<std::string, std::vector<std::filesystem::path>>& tables() const {
    return tables_;
  }
  // Whether all tensors are; nobody has looked at the rows of growing tables.
  bool finite() const;
  uint64_t bytes() const { return bytes_; }  // of all its files

  // No other manifest has it, as far as checksums tell.
  uint32_t checksum() const { return checksum_; }

  // kUnknownName with the nearest name. Valid as long as the reader.
  Result<const CheckpointTensor*> find(const std::string& name) const;
  // Checked against its checksums. kUnknownName, kCorruptFile, kInput.
  Result<Tensor> read(const std::string& name) const;
  // Into the memory of a tensor of its type and shape, on the host. What is there is unspecified
  // when it fails.
  Status read_into(const std::string& name, Tensor& tensor) const;
  // Row i of the tensor is the variable's row first + i * stride, or zeros where it has no such
  // row.
  Status read_rows_into(const std::string& name, int64_t first, int64_t stride,
                        Tensor& tensor) const;
  // Reads what those calls would, and keeps nothing.
  Status check(const std::string& name) const;
  Status check_rows(const std::string& name, int64_t first, int64_t stride, int64_t count) const;

  // Reads the files of a growing table, and keeps nothing. kUnknownName, kCorruptFile, kInput.
  Status check_table(const std::string& name) const;

  // Reads everything, and gives all that does not fit: nothing for a whole checkpoint. Tensors of a
  // file that cannot be opened are not named on their own.
  static std::vector<Status> find_damage(const std::filesystem::path& folder,
                                         FileSystem& files = system_files());

 private:
  CheckpointReader(const std::filesystem::path& folder, FileSystem& disk)
      : disk_(&disk), folder_(folder) {}
  std::vector<Status> read_folder();
  // Throws ResourceError for what leaves nothing to be read.
  void read_manifest(std::vector<Status>& wrong);
  // By table, its files with their sizes.
  using TableFiles = std::map<std::string, std::vector<std::pair<std::string, uint64_t>>>;
  void find_tables(const TableFiles& tables, std::vector<Status>& wrong);
  Status find_file(const std::string& name, uint64_t size);
  Status open_file(const std::string& name, uint64_t size);
  Status read_piece_into(const CheckpointPiece& piece, Tensor& tensor) const;
  Status check_piece(const CheckpointPiece& piece, const Result<uint32_t>& sum) const;

  FileSystem* disk_;
  std::filesystem::path folder_;
  CheckpointInfo info_;
  std::map<std::string, CheckpointTensor> tensors_;
  std::map<std::string, std::vector<std::filesystem::path>> tables_;
  std::map<std::string, SafetensorsReader> files_;
  uint64_t bytes_ = 0;
  uint32_t checksum_ = 0;
};

}  // namespace fleet::fluid::io
