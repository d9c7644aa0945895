#include "fluid/io/growing_tables.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"
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

std::string free_name(const std::string& variable, const SavedTables& former) {
  for (int number = 0;; ++number) {
    std::string name = str_cat(file_name_of(variable), ".", number, ".table");
    const bool taken = std::any_of(former.files.begin(), former.files.end(),
                                   [&](const auto& file) { return file.second == name; });
    if (!taken) return name;
  }
}

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
  const auto file = saved.files.find(var.name);
  if (file == saved.files.end()) {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "the saved model lacks a growing table of the program",
                 .where = str_cat("variable '", var.name, "' in ", folder.string()),
                 .expected = "a file of its rows",
                 .got = "nothing",
                 .fix = "load a model that this program saved"});
  }
  const Value* value = scope.find(var.name);
  const auto there = value == nullptr ? nullptr : tables::table_of(*value);
  const tables::TableOptions options =
      there != nullptr ? there->options() : saved_options(folder, saved, var.name);
  check_width(folder, var, options);
  const std::array files = {folder / file->second};
  return load_growing_table(options, files);
}

}  // namespace

TableSave::TableSave(std::shared_ptr<SharedTable> table, path file,
                     const tables::TableSaveOptions& options, FileSystem& files)
    : table_(std::move(table)), file_(std::move(file)) {
  make_directory(file_.has_parent_path() ? file_.parent_path() : path("."), files);
  table_->alone([&](GrowingTable& rows) { saver_.emplace(rows, file_, options, files); });
}

TableSave::~TableSave() {
  table_->alone([this](GrowingTable&) { saver_.reset(); });
}

uint64_t TableSave::finish() {
  while (table_->alone([this](GrowingTable&) { return saver_->collect(); })) saver_->write();
  table_->alone([this](GrowingTable&) { saver_->commit(); });
  return saver_->rows();
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

void read_table_delta(const Scope& scope, const std::string& name, const path& file,
                      FileSystem& files) {
  growing_table(scope, name)->alone([&](GrowingTable& table) {
    tables::DeltaReader(table, {table.delta_number()}).read(file, {}, files);
  });
}

SavedTables write_tables(const path& folder, const NamedTables& tables, const SavedTables& former) {
  SavedTables saved;
  if (tables.empty()) return saved;
  Program makers;
  // All begin here: training goes on while files are written.
  std::vector<std::unique_ptr<TableSave>> saves;
  for (const auto& [name, table] : tables) {
    saved.files[name] = free_name(name, former);
    saves.push_back(std::make_unique<TableSave>(table, folder / saved.files[name]));
  }
  for (const auto& save : saves) save->finish();
  for (const auto& [name, table] : tables) {
    makers.global_block().append_op(maker_of(name, table->options()));
  }
  saved.makers = makers.to_json();
  return saved;
}

void remove_tables(const path& folder, const SavedTables& former, const SavedTables& now) {
  for (const auto& [name, file] : former.files) {
    const auto kept = now.files.find(name);
    if (kept != now.files.end() && kept->second == file) continue;
    static_cast<void>(system_files().remove(folder / file));
  }
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
