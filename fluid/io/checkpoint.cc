#include "fluid/io/checkpoint.h"

#include "base/error.h"
#include "fluid/core/interleaved_rows.h"
#include "fluid/io/persistables.h"
#include "fluid/program/interleaved.h"

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

}  // namespace

void save_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program) {
  CommRuntime* runtime = runtime_of(program);
  if (runtime != nullptr && !runtime->gather_persistables(executor.scope())) return;
  fluid::save_persistables(executor, directory, source_of(program, runtime));
}

void load_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program) {
  CommRuntime* runtime = runtime_of(program);
  fluid::load_persistables(executor, directory, source_of(program, runtime));
  if (runtime != nullptr) runtime->spread_persistables(executor.scope());
}

void load_slices(const Program& program, Scope& scope, const std::filesystem::path& directory) {
  const NamedTensors saved = load_tensors(directory);
  for (const VarDesc* var : persistables(program)) {
    const std::string& origin = var->slice ? var->slice->origin : var->name;
    const auto found = saved.find(origin);
    if (found == saved.end()) {
      throw_error(ErrorCode::kInvalidProgram,
                  {.what = "the checkpoint lacks a variable of this server",
                   .where = directory.string(),
                   .expected = "variable '" + origin + "'",
                   .fix = "load a checkpoint of the same program and optimizer"});
    }
    const Tensor part = part_of(found->second, program, *var);
    if (part.dtype() != var->dtype || !var->shape.compatible(part.shape())) {
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "a variable of the checkpoint has another type or shape",
                   .where = "variable '" + origin + "'",
                   .expected = str_cat(dtype_name(var->dtype), var->shape),
                   .got = str_cat(dtype_name(part.dtype()), part.shape()),
                   .fix = "load a checkpoint of the same program"});
    }
    scope.var(var->name) = part.clone();
  }
}

}  // namespace fleet::fluid::io
