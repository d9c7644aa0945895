// Files of growing tables (fluid/tables/table_pieces.h): whole tables beside the parameters of a
// program, and deltas.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "fluid/kernels/comm_runtime.h"
#include "fluid/program/program.h"
#include "fluid/tables/lookup/shared_table.h"
#include "fluid/tables/table_saver.h"

namespace fleet::fluid {

// The persistable growing tables of block 0, sorted by name.
std::vector<const VarDesc*> growing_tables(const Program& program);

namespace io {

// A file of a table, as the table is when this is made. Other threads may use the table until it is
// written: it is held for a piece of the file at a time, and not while the disk works. Calls one
// after the other, from any thread; they throw ResourceError, and a file that had the name is then
// as before.
class TableSave {
 public:
  // Makes the file's directory where it is missing. Without a `file`, open() is the first call.
  TableSave(std::shared_ptr<tables::SharedTable> table, std::filesystem::path file,
            const tables::TableSaveOptions& options = {}, FileSystem& files = system_files());
  // Without finish(), nothing is written.
  ~TableSave();
  TableSave(const TableSave&) = delete;
  TableSave& operator=(const TableSave&) = delete;

  const std::filesystem::path& file() const { return file_; }
  void open(std::filesystem::path file);
  // Writes all of it. Returns how many rows there are.
  uint64_t finish();
  // The same in two steps: the file has its name, and a delta is one, behind the second.
  uint64_t write();
  void commit();

 private:
  void make_folder() const;

  std::shared_ptr<tables::SharedTable> table_;
  std::filesystem::path file_;
  FileSystem& files_;
  std::optional<tables::TableSaver> saver_;
  uint64_t rows_ = 0;
};

// A file's name for a variable, whatever it is called: other characters than letters, digits and
// _-@. are written as %2F.
std::string file_name_of(const std::string& variable);

// A new table of these options with the rows of all files of one save. Throws UsageError for rows
// of another form, ResourceError for damaged files.
std::shared_ptr<tables::SharedTable> load_growing_table(
    const tables::TableOptions& options, std::span<const std::filesystem::path> files,
    FileSystem& disk = system_files());

// What changed in the scope's table since the last delta, or since it was made, as a file; numbers
// of deltas follow each other. The table's layer was given `deltas`. Throws UsageError,
// ResourceError.
uint64_t save_table_delta(const Scope& scope, const std::string& name,
                          const std::filesystem::path& file, FileSystem& files = system_files());
// Brings the scope's table up to date: the delta that follows what the table has; `parts`: its
// files, of as many servers as wrote them. Throws UsageError for one that was read before, or does
// not follow; ResourceError for a damaged file. Rows of that file are then as before; a delta of
// which some files were read may be read again.
void read_table_delta(const Scope& scope, const std::string& name,
                      std::span<const std::filesystem::path> parts,
                      FileSystem& files = system_files());
inline void read_table_delta(const Scope& scope, const std::string& name,
                             const std::filesystem::path& file,
                             FileSystem& files = system_files()) {
  read_table_delta(scope, name, std::span(&file, 1), files);
}

// Tables by the names of their variables.
using NamedTables = std::map<std::string, std::shared_ptr<tables::SharedTable>>;

// What a manifest says of the tables of a folder.
struct SavedTables {
  // Names in the folder, by variable: one, or as many as servers wrote.
  std::map<std::string, std::vector<std::string>> files;
  // A program whose ops make the tables, empty, as they were (Program::to_json).
  std::string makers;
};

// Writes the tables of some variables into files of their own, each as it is at one moment.
class TableWriter {
 public:
  virtual ~TableWriter() = default;
  // All at once, as they are at the beginning of the call; rows that training changes meanwhile are
  // kept in memory until they are written. Names begin with those of `bases`.
  using TableFiles = CommRuntime::TableFiles;
  virtual std::vector<TableFiles> write(const std::filesystem::path& folder,
                                        const std::vector<std::string>& tables,
                                        const std::vector<std::string>& bases) = 0;
};

// Of the folder's manifest.
SavedTables saved_tables(const std::filesystem::path& folder);

// `states`: of optimizers are written, too. Of a scope, which outlives the writer.
std::unique_ptr<TableWriter> tables_of_scope(const Scope& scope, bool states);
// Of the servers of a job, behind the gather() that set these tables apart: as they were then.
// Without write(), nothing is kept of them.
std::unique_ptr<TableWriter> tables_of_servers(CommRuntime& runtime,
                                               const CommRuntime::ModelValues& gathered);
// What a model of the program has, where the job's runtime is told: its parameters and other
// persistable variables, and growing tables if servers have these.
CommRuntime::ModelValues model_values(const Program& program, const CommRuntime& runtime,
                                      bool states);

// Files that `former` names stay as they are until remove_tables().
SavedTables write_tables(const std::filesystem::path& folder,
                         const std::vector<std::string>& tables, TableWriter& writer,
                         const SavedTables& former);
// Takes the files of `former` away that `now` does not name.
void remove_tables(const std::filesystem::path& folder, const SavedTables& former,
                   const SavedTables& now);
// The paths of a table's files; ProgramError for one that was not saved.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder,
                                            const SavedTables& saved, const std::string& table);
// New tables with what the folder has of those that the program has, of the options that the
// scope's have, or else of those that were saved. Throws ProgramError for a table that was not
// saved, or of another width, UsageError for one with other states, ResourceError for damaged
// files.
NamedTables read_tables(const std::filesystem::path& folder, const SavedTables& saved,
                        const Program& program, const Scope& scope);

}  // namespace io
}  // namespace fleet::fluid
