#include "fluid/io/checkpoint.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/interleaved_rows.h"
#include "fluid/io/growing_tables.h"
#include "fluid/io/persistables.h"
#include "fluid/io/table_files.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/program/interleaved.h"
#include "fluid/tables/table_loading.h"

namespace fleet::fluid::io {
namespace {

CommRuntime* runtime_of(const Program& program) {
  return dynamic_cast<CommRuntime*>(program.runtime().get());
}

// The program whose variables make up the checkpoint.
const Program& source_of(const Program& program, const CommRuntime* runtime) {
  const Program* source = runtime == nullptr ? nullptr : runtime->checkpoint_program();
  return source == nullptr ? program : *source;
}

Tensor part_of(const Tensor& whole, const Program& program, const VarDesc& var) {
  if (!var.slice) return whole;
  const int64_t row = whole.shape().numel(1, whole.shape().rank());
  const int64_t begin = row == 0 ? 0 : var.slice->offset / row;
  const int64_t stride = row_stride(program, var);
  if (stride > 1) return take_rows(whole, begin, stride, var.shape[0]);
  return whole.rows(begin, begin + var.shape[0]);
}

// What a variable of a server is a part of, or a copy of.
struct Origin {
  std::string name;
  bool listed = false;  // the job's overview says so: a checkpoint must have it
};

Origin origin_of(const Program& program, const VarDesc& var) {
  Origin origin{.name = var.slice ? var.slice->origin : var.name, .listed = var.slice.has_value()};
  for (const DistributedVar& row : program.distribution().vars) {
    if (row.slice != var.name) continue;
    origin.listed = true;
    if (!var.slice) origin.name = row.origin;
  }
  return origin;
}

// The variable's part of the checkpoint; none for what only servers have.
std::optional<Tensor> load_slice(const Program& program, const VarDesc& var,
                                 const NamedTensors& saved,
                                 const std::filesystem::path& directory) {
  const Origin origin = origin_of(program, var);
  const auto found = saved.find(origin.name);
  if (found != saved.end()) return part_of(found->second, program, var);
  const auto tables = directory / kLookupTableDirectory;
  if (var.kind == VarKind::kSelectedRows && has_table_files(tables, origin.name)) {
    const int64_t width = var.shape.numel(1, var.shape.rank());
    return load_table_rows(tables, origin.name, var.slice ? var.slice->offset / width : 0,
                           row_stride(program, var), var.shape[0]);
  }
  if (!origin.listed) return std::nullopt;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "the checkpoint lacks a variable of this server",
               .where = directory.string(),
               .expected = "variable '" + origin.name + "'",
               .got = str_cat(saved.size(), " other variables"),
               .fix = "load a checkpoint of the same program and optimizer"});
}

}  // namespace

void save_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program) {
  executor.look_at_steps();
  CommRuntime* runtime = runtime_of(program);
  const Program& source = source_of(program, runtime);
  if (runtime == nullptr) return fluid::save_persistables(executor, directory, source);
  const auto values = model_values(source, *runtime, true);
  // What is gathered does not take the place of what this worker trains.
  Scope gathered(&executor.scope());
  if (!runtime->gather(values, executor.scope(), gathered)) return;
  const auto tables = runtime->keeps_tables() ? tables_of_servers(*runtime, values)
                                              : tables_of_scope(gathered, true);
  fluid::save_persistables(gathered, directory, source, *tables);
}

void load_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program) {
  CommRuntime* runtime = runtime_of(program);
  fluid::load_persistables(executor, directory, source_of(program, runtime), runtime);
  if (runtime != nullptr) runtime->spread_persistables(executor.scope());
}

namespace {

// Of the buckets that this server keeps.
std::unique_ptr<tables::TableLoader> load_table_part(const Program& program, const VarDesc& var,
                                                     const Scope& scope,
                                                     const std::filesystem::path& directory) {
  const auto& endpoints = program.distribution().endpoints;
  const auto own =
      std::find(endpoints.begin(), endpoints.end(), program.distribution().ps_endpoint);
  const auto index = static_cast<size_t>(own - endpoints.begin());
  const auto mine = [&](uint32_t bucket) {
    return own == endpoints.end() || server_of_bucket(bucket, endpoints.size()) == index;
  };
  const auto files = files_of(directory, saved_tables(directory), var.name);
  return std::make_unique<tables::TableLoader>(growing_table(scope, var.name)->options(), files,
                                               mine);
}

}  // namespace

// All is read before anything changes.
void load_slices(const Program& program, Scope& scope, const std::filesystem::path& directory) {
  const NamedTensors saved = load_tensors(directory);
  std::map<std::string, std::unique_ptr<tables::TableLoader>> rows;
  for (const VarDesc* var : growing_tables(program)) {
    rows[var->name] = load_table_part(program, *var, scope, directory);
  }
  NamedTensors parts;
  for (const VarDesc* var : program.global_block().vars()) {
    const Value* value = scope.find(var->name);
    const auto* initial = value == nullptr ? nullptr : std::get_if<Tensor>(value);
    if (initial == nullptr || !initial->initialized()) continue;
    const auto part = load_slice(program, *var, saved, directory);
    if (!part) continue;
    if (part->dtype() != initial->dtype() || !(part->shape() == initial->shape())) {
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "a variable of the checkpoint has another type or shape",
                   .where = "variable '" + origin_of(program, *var).name + "'",
                   .expected = str_cat(dtype_name(initial->dtype()), initial->shape()),
                   .got = str_cat(dtype_name(part->dtype()), part->shape()),
                   .fix = "load a checkpoint of the same program"});
    }
    parts.emplace(var->name, part->clone());
  }
  for (auto& [name, part] : parts) scope.var(name) = std::move(part);
  for (const auto& [name, loaded] : rows) {
    growing_table(scope, name)->alone([&loader = *loaded](tables::GrowingTable& table) {
      return loader.put_into(table);
    });
  }
}

}  // namespace fleet::fluid::io
