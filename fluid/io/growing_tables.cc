#include "fluid/io/growing_tables.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"
#include "fluid/io/persistables.h"
#include "fluid/ops/nn/growing_table.h"
#include "fluid/tables/table_deltas.h"
#include "fluid/tables/table_loading.h"

namespace fleet::fluid {

std::vector<const VarDesc*> growing_tables(const Program& program) {
  std::vector<const VarDesc*> found;
  for (const VarDesc* var : program.global_block().vars()) {
    if (var->persistable && var->kind == VarKind::kGrowingTable) found.push_back(var);
  }
  return found;
}

namespace io {
namespace {

using std::filesystem::path;
using tables::GrowingTable;
using tables::SharedTable;

constexpr const char* kMake = "make_growing_table";

std::string free_base(const std::string& variable, const SavedTables& former) {
  for (int number = 0;; ++number) {
    std::string base = str_cat(file_name_of(variable), ".", number);
    const bool taken =
        std::any_of(former.files.begin(), former.files.end(), [&](const auto& table) {
          return std::any_of(table.second.begin(), table.second.end(),
                             [&](const std::string& file) { return file.starts_with(base + "."); });
        });
    if (!taken) return base;
  }
}

// With the states that its files have.
Operator maker_of(const std::string& variable, const tables::TableOptions& options) {
  Operator op;
  op.type = kMake;
  op.outputs["Out"] = {variable};
  op.attrs = to_attributes(table_attributes(options));
  return op;
}

// The options of the table that was saved under this name.
tables::TableOptions saved_options(const path& folder, const SavedTables& saved,
                                   const std::string& name) {
  const auto makers = Program::from_json(saved.makers);
  if (makers.ok()) {
    for (const auto& op : makers.value().global_block().ops()) {
      if (op->type != kMake || op->output("Out") != std::vector<std::string>{name}) continue;
      return table_options(parse_attributes<MakeGrowingTableAttrs>(kMake, op->attrs), name, 0);
    }
  }
  throw_error(ErrorCode::kCorruptFile,
              {.what = "the manifest does not say how a growing table is made",
               .where = str_cat("growing table '", name, "' in ", folder.string()),
               .expected = str_cat("an op '", kMake, "'"),
               .got = "none",
               .fix = "save the model again"});
}

void check_width(const path& folder, const VarDesc& var, const tables::TableOptions& options) {
  if (var.shape.rank() == 2 && var.shape[1] == static_cast<int64_t>(options.width)) return;
  throw_error(ErrorCode::kShapeMismatch,
              {.what = "a saved growing table has another width",
               .where = str_cat("variable '", var.name, "' in ", folder.string()),
               .expected = var.shape.to_string(),
               .got = str_cat("rows of ", options.width),
               .fix = "load a model that this program saved"});
}

std::shared_ptr<SharedTable> read_table(const path& folder, const SavedTables& saved,
                                        const VarDesc& var, const Scope& scope) {
  const std::vector<path> files = files_of(folder, saved, var.name);
  const Value* value = scope.find(var.name);
  const auto there = value == nullptr ? nullptr : tables::table_of(*value);
  const tables::TableOptions options =
      there != nullptr ? there->options() : saved_options(folder, saved, var.name);
  check_width(folder, var, options);
  return load_growing_table(options, files);
}

}  // namespace

TableSave::TableSave(std::shared_ptr<SharedTable> table, path file,
                     const tables::TableSaveOptions& options, FileSystem& files)
    : table_(std::move(table)), file_(std::move(file)), files_(files) {
  if (!file_.empty()) make_folder();
  table_->alone([&](GrowingTable& rows) { saver_.emplace(rows, file_, options, files); });
}

void TableSave::open(path file) {
  file_ = std::move(file);
  make_folder();
  saver_->open(file_);
}

void TableSave::make_folder() const {
  make_directory(file_.has_parent_path() ? file_.parent_path() : path("."), files_);
}

TableSave::~TableSave() {
  table_->alone([this](GrowingTable&) { saver_.reset(); });
}

uint64_t TableSave::finish() {
  write();
  commit();
  return rows_;
}

uint64_t TableSave::write() {
  while (table_->alone([this](GrowingTable&) { return saver_->collect(); })) saver_->write();
  rows_ = saver_->rows();
  return rows_;
}

void TableSave::commit() {
  saver_->commit();
  table_->alone([this](GrowingTable&) { saver_.reset(); });
}

std::string file_name_of(const std::string& variable) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string name;
  for (const char c : variable) {
    const auto code = static_cast<unsigned char>(c);
    const bool plain =
        std::isalnum(code) != 0 || c == '_' || c == '-' || c == '@' || (c == '.' && !name.empty());
    if (plain) {
      name += c;
    } else {
      name += {'%', kDigits[code >> 4], kDigits[code & 15]};
    }
  }
  return name;
}

std::shared_ptr<SharedTable> load_growing_table(const tables::TableOptions& options,
                                                std::span<const path> files, FileSystem& disk) {
  auto table = std::make_shared<SharedTable>(options);
  table->alone([&](GrowingTable& rows) { return tables::load_table(rows, files, {}, disk); });
  return table;
}

uint64_t save_table_delta(const Scope& scope, const std::string& name, const path& file,
                          FileSystem& files) {
  return TableSave(growing_table(scope, name), file, {.delta = true}, files).finish();
}

void read_table_delta(const Scope& scope, const std::string& name, std::span<const path> parts,
                      FileSystem& files) {
  growing_table(scope, name)->alone([&](GrowingTable& table) {
    tables::DeltaReader reader(table, std::vector<uint64_t>(parts.size(), table.delta_number()));
    for (const path& part : parts) reader.read(part, {}, files);
  });
}

namespace {

void require_all_rows(const SharedTable& table) {
  if (!table.is_part()) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "a worker that trains alone has some rows of a table, the servers have all",
               .where = str_cat("growing table '", table.options().name, "'"),
               .expected = "a save by the job",
               .got = "one of this worker's scope",
               .fix = "call fleet::save_inference_model or fleet::save_persistables in every "
                      "worker"});
}

class ScopeTables final : public TableWriter {
 public:
  ScopeTables(const Scope& scope, bool states) : scope_(scope), states_(states) {}

  std::vector<TableFiles> write(const path& folder, const std::vector<std::string>& tables,
                                const std::vector<std::string>& bases) override {
    std::vector<TableFiles> written;
    std::vector<std::unique_ptr<TableSave>> saves;
    for (size_t i = 0; i < tables.size(); ++i) {
      const auto table = growing_table(scope_, tables[i]);
      require_all_rows(*table);
      written.push_back({{bases[i] + ".table"}, table->options()});
      if (!states_) written.back().options.states.clear();
      saves.push_back(std::make_unique<TableSave>(table, folder / written.back().names.front(),
                                                  tables::TableSaveOptions{.states = states_}));
    }
    for (const auto& save : saves) save->finish();
    return written;
  }

 private:
  const Scope& scope_;
  const bool states_;
};

class ServerTables final : public TableWriter {
 public:
  ServerTables(CommRuntime& runtime, const CommRuntime::ModelValues& gathered)
      : runtime_(runtime), tables_(gathered.tables), states_(gathered.states) {}
  ServerTables(const ServerTables&) = delete;
  ServerTables& operator=(const ServerTables&) = delete;
  ~ServerTables() override {
    if (!tables_.empty()) runtime_.drop_tables(tables_);
  }

  std::vector<TableFiles> write(const path& folder, const std::vector<std::string>& tables,
                                const std::vector<std::string>& bases) override {
    make_directory(folder);
    std::vector<TableFiles> written;
    for (size_t i = 0; i < tables.size(); ++i) {
      written.push_back(runtime_.save_table(tables[i], folder, bases[i]));
      if (!states_) written.back().options.states.clear();
    }
    tables_.clear();
    return written;
  }

 private:
  CommRuntime& runtime_;
  std::vector<std::string> tables_;  // that are set apart
  const bool states_;
};

}  // namespace

std::unique_ptr<TableWriter> tables_of_scope(const Scope& scope, bool states) {
  return std::make_unique<ScopeTables>(scope, states);
}

std::unique_ptr<TableWriter> tables_of_servers(CommRuntime& runtime,
                                               const CommRuntime::ModelValues& gathered) {
  return std::make_unique<ServerTables>(runtime, gathered);
}

CommRuntime::ModelValues model_values(const Program& program, const CommRuntime& runtime,
                                      bool states) {
  CommRuntime::ModelValues values{.names = {}, .tables = {}, .states = states};
  for (const VarDesc* var : persistables(program)) values.names.push_back(var->name);
  if (!runtime.keeps_tables()) return values;
  for (const VarDesc* var : growing_tables(program)) values.tables.push_back(var->name);
  return values;
}

SavedTables write_tables(const path& folder, const std::vector<std::string>& tables,
                         TableWriter& writer, const SavedTables& former) {
  SavedTables saved;
  if (tables.empty()) return saved;
  std::vector<std::string> bases;
  bases.reserve(tables.size());
  for (const std::string& name : tables) bases.push_back(free_base(name, former));
  std::vector<TableWriter::TableFiles> written = writer.write(folder, tables, bases);
  Program makers;
  for (size_t i = 0; i < tables.size(); ++i) {
    makers.global_block().append_op(maker_of(tables[i], written[i].options));
    saved.files[tables[i]] = std::move(written[i].names);
  }
  saved.makers = makers.to_json();
  return saved;
}

void remove_tables(const path& folder, const SavedTables& former, const SavedTables& now) {
  for (const auto& [name, files] : former.files) {
    const auto kept = now.files.find(name);
    if (kept != now.files.end() && kept->second == files) continue;
    for (const std::string& file : files) {
      static_cast<void>(system_files().remove(folder / file));
    }
  }
}

std::vector<path> files_of(const path& folder, const SavedTables& saved, const std::string& table) {
  const auto files = saved.files.find(table);
  if (files == saved.files.end()) {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "the saved model lacks a growing table of the program",
                 .where = str_cat("variable '", table, "' in ", folder.string()),
                 .expected = "a file of its rows",
                 .got = "nothing",
                 .fix = "load a model that this program saved"});
  }
  std::vector<path> paths;
  for (const std::string& file : files->second) paths.push_back(folder / file);
  return paths;
}

NamedTables read_tables(const path& folder, const SavedTables& saved, const Program& program,
                        const Scope& scope) {
  NamedTables read;
  for (const VarDesc* var : growing_tables(program)) {
    read[var->name] = read_table(folder, saved, *var, scope);
  }
  return read;
}

}  // namespace io
}  // namespace fleet::fluid
