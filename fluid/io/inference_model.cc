#include "fluid/io/inference_model.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"
#include "fluid/io/growing_tables.h"
#include "fluid/io/paddle_tensor.h"
#include "fluid/io/persistables.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid::io {
namespace {

using Json = nlohmann::json;
using Values = std::map<std::string, Value>;

constexpr int kModelVersion = 1;
constexpr size_t kMaxModel = size_t{1} << 30;
constexpr size_t kMaxParameters = size_t{1} << 40;

// The file of a variable: inside the directory, whatever a program file calls the variable.
std::filesystem::path file_of(const std::filesystem::path& directory, const std::string& name) {
  const std::filesystem::path relative(name);
  const bool inside =
      relative.is_relative() && std::find(relative.begin(), relative.end(), "..") == relative.end();
  if (inside) return directory / relative;
  throw_error(ErrorCode::kInvalidProgram, {.what = "a variable's name leads out of the directory",
                                           .where = "variable '" + name + "'",
                                           .expected = "a name that is a file of the directory",
                                           .got = name,
                                           .fix = "rename the variable"});
}

// Persistable variables that hold values, sorted by name.
std::vector<const VarDesc*> stored(const Program& program) {
  std::vector<const VarDesc*> found;
  for (const VarDesc* var : program.global_block().vars()) {
    const bool values = var->kind == VarKind::kLodTensor || var->kind == VarKind::kSelectedRows;
    if (var->persistable && var->typed && values) found.push_back(var);
  }
  return found;
}

[[noreturn]] void throw_in_file(const std::filesystem::path& path, const Status& status) {
  ErrorText text = status.text();
  text.where = "file " + path.string() + (text.where.empty() ? "" : ", " + text.where);
  throw_error(status.code(), std::move(text));
}

void check_fits(const VarDesc& var, const Tensor& value, const std::filesystem::path& path) {
  if (value.dtype() == var.dtype && var.shape.compatible(value.shape())) return;
  throw_error(ErrorCode::kShapeMismatch,
              {.what = "a saved variable has another type or shape",
               .where = str_cat("variable '", var.name, "' in ", path.string()),
               .expected = str_cat(dtype_name(var.dtype), var.shape),
               .got = str_cat(dtype_name(value.dtype()), value.shape()),
               .fix = "load the parameters that belong to this program"});
}

// The variable's value from the front of `bytes`, which moves on.
Value read_value(const VarDesc& var, std::span<const std::byte>& bytes,
                 const std::filesystem::path& path) {
  if (var.kind == VarKind::kSelectedRows) {
    auto rows = decode_paddle_rows(bytes);
    if (!rows.ok()) throw_in_file(path, rows.status());
    return std::move(rows.value());
  }
  auto tensor = decode_paddle_tensor(bytes);
  if (!tensor.ok()) throw_in_file(path, tensor.status());
  check_fits(var, tensor.value(), path);
  return std::move(tensor.value());
}

void check_end(std::span<const std::byte> rest, const std::filesystem::path& path) {
  if (rest.empty()) return;
  throw_error(ErrorCode::kCorruptFile, {.what = "the file holds more than the program's variables",
                                        .where = "file " + path.string(),
                                        .expected = "its end",
                                        .got = str_cat(rest.size(), " more bytes"),
                                        .fix = "load it with the program that it was saved for"});
}

Values read_paddle(const std::filesystem::path& directory, const Program& program,
                   const std::string& params) {
  Values values;
  std::vector<std::byte> all;
  std::span<const std::byte> rest;
  if (!params.empty()) {
    all = read_whole_file(directory / params, kMaxParameters);
    rest = all;
  }
  for (const VarDesc* var : stored(program)) {
    const std::filesystem::path path = file_of(directory, params.empty() ? var->name : params);
    if (params.empty()) {
      all = read_whole_file(path, kMaxParameters);
      rest = all;
    }
    values[var->name] = read_value(*var, rest, path);
    if (params.empty()) check_end(rest, path);
  }
  if (!params.empty()) check_end(rest, directory / params);
  return values;
}

void put_values(Values values, Scope& scope) {
  for (auto& entry : values) scope.var(entry.first) = std::move(entry.second);
}

// Without ops that need the job which the program was rewritten for.
void check_local(const Block& block) {
  for (const auto& op : block.ops()) {
    if (schema_of(block.program(), *op).run_by != RunBy::kRuntime) continue;
    throw_error(ErrorCode::kPrecondition,
                {.what = "the program was rewritten for a distributed job",
                 .where = "op '" + op->type + "'",
                 .expected = "the program before minimize rewrote it",
                 .got = "one that talks to other processes",
                 .fix = "call fleet::save_inference_model in every worker"});
  }
}

// Feeds and fetches are variables of the program, and nothing else has to be fed.
void check_ports(const Program& pruned, const std::vector<std::string>& feeds) {
  const Block& block = pruned.global_block();
  std::set<std::string> made(feeds.begin(), feeds.end());
  for (const auto& op : block.ops()) {
    for (const std::string& name : op->input_names()) {
      const VarDesc& var = block.var(name);
      if (made.contains(name) || var.persistable || !var.is_data) continue;
      throw_error(ErrorCode::kFeed,
                  {.what = "the targets need data that is not fed",
                   .where = str_cat("variable '", name, "', read by op '", op->type, "'"),
                   .expected = "'" + name + "' among the feeds",
                   .got = join(feeds, ", "),
                   .fix = "add it to the feeds, or choose other targets"});
    }
  }
}

// The program that computes the targets from the feeds.
InferenceModel inference_model(const std::vector<std::string>& feeds,
                               const std::vector<Variable>& targets, const Program& program) {
  InferenceModel model{.program = {}, .feeds = feeds, .fetches = {}};
  for (const Variable& target : targets) model.fetches.push_back(target.name());
  for (const std::string& name : feeds) program.global_block().var(name);
  for (const std::string& name : model.fetches) program.global_block().var(name);
  model.program = program.clone(true).prune(model.fetches, feeds);
  Block& block = model.program.global_block();
  check_local(block);
  check_ports(model.program, feeds);
  for (const std::string& name : feeds) {
    // A target may be fed itself, and not be read by any op that is left.
    if (block.find_var(name) == nullptr) block.add_var(program.global_block().var(name));
    block.var(name).is_data = true;
  }
  return model;
}

void write_model(const std::filesystem::path& directory, const InferenceModel& model,
                 const Scope& scope, TableWriter& tables) {
  const Json json = {{"format_version", kModelVersion},
                     {"feeds", model.feeds},
                     {"fetches", model.fetches},
                     {"program", model.program.to_json()}};
  const std::string text = json.dump(1) + "\n";
  fluid::save_persistables(scope, directory, model.program, tables);
  write_file_atomically(directory / kModelFile, std::as_bytes(std::span(text)));
}

InferenceModel read_own(const std::filesystem::path& path) {
  const auto bytes = read_whole_file(path, kMaxModel);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Json json = Json::parse(text, nullptr, false);
  const auto corrupt = [&](std::string what) {
    throw_error(ErrorCode::kCorruptFile, {.what = std::move(what),
                                          .where = "file " + path.string(),
                                          .expected = "what save_inference_model writes",
                                          .got = "something else",
                                          .fix = "save the model again"});
  };
  const auto names = [&](const char* key) {
    const Json list = json.is_object() ? json.value(key, Json()) : Json();
    const bool texts =
        list.is_array() &&
        std::all_of(list.begin(), list.end(), [](const Json& one) { return one.is_string(); });
    if (!texts) corrupt(str_cat("the model has no list of ", key));
    return list.get<std::vector<std::string>>();
  };
  InferenceModel model;
  model.feeds = names("feeds");
  model.fetches = names("fetches");
  if (json.value("format_version", Json()) != Json(kModelVersion) || !json.contains("program") ||
      !json["program"].is_string()) {
    corrupt("the model has another format version, or no program");
  }
  auto program = Program::from_json(json["program"].get<std::string>());
  if (!program.ok()) throw_in_file(path, program.status());
  model.program = std::move(program.value());
  for (const std::string& name : model.feeds) model.program.global_block().var(name);
  for (const std::string& name : model.fetches) model.program.global_block().var(name);
  return model;
}

}  // namespace

void save_inference_model(const std::filesystem::path& directory,
                          const std::vector<std::string>& feeds,
                          const std::vector<Variable>& targets, Executor& executor,
                          const Program& program) {
  executor.look_at_steps();
  const Scope& scope = executor.scope();
  write_model(directory, inference_model(feeds, targets, program), scope,
              *tables_of_scope(scope, false));
}

void save_inference_model(const std::filesystem::path& directory,
                          const std::vector<std::string>& feeds,
                          const std::vector<Variable>& targets, Executor& executor,
                          const Program& program, CommRuntime& runtime) {
  executor.look_at_steps();
  const InferenceModel model = inference_model(feeds, targets, program);
  const auto values = model_values(model.program, runtime, false);
  Scope gathered(&executor.scope());
  if (!runtime.gather(values, executor.scope(), gathered)) return;
  const auto tables = runtime.keeps_tables() ? tables_of_servers(runtime, values)
                                             : tables_of_scope(gathered, false);
  write_model(directory, model, gathered, *tables);
}

InferenceModel load_inference_model(const std::filesystem::path& directory, Executor& executor,
                                    const PaddleFiles& files,
                                    std::shared_ptr<const ProgramOps> library) {
  const bool named = !files.model.empty() || !files.params.empty();
  if (!named && std::filesystem::exists(directory / kModelFile)) {
    InferenceModel model = read_own(directory / kModelFile);
    model.program.set_op_library(std::move(library));
    fluid::load_persistables(executor, directory, model.program);
    return model;
  }
  const auto path = directory / (files.model.empty() ? "__model__" : files.model);
  auto model = decode_paddle_program(read_whole_file(path, kMaxModel), std::move(library));
  if (!model.ok()) throw_in_file(path, model.status());
  put_values(read_paddle(directory, model.value().program, files.params), executor.scope());
  return std::move(model.value());
}

void load_paddle_persistables(const std::filesystem::path& directory, Executor& executor,
                              const Program& program, const std::string& params) {
  put_values(read_paddle(directory, program, params), executor.scope());
}

void save_paddle_persistables(const std::filesystem::path& directory, Executor& executor,
                              const Program& program, const std::string& params) {
  executor.look_at_steps();
  save_paddle_persistables(directory, executor.scope(), program, params);
}

void save_paddle_persistables(const std::filesystem::path& directory, const Scope& scope,
                              const Program& program, const std::string& params) {
  if (const auto tables = growing_tables(program); !tables.empty()) {
    throw_error(ErrorCode::kNotSupported,
                {.what = "Paddle's files of parameters have no growing tables",
                 .where = "variable '" + tables.front()->name + "'",
                 .expected = "variables with values",
                 .got = "a growing table",
                 .fix = "use save_persistables"});
  }
  std::vector<std::byte> bytes;
  for (const VarDesc* var : stored(program)) {
    require_value_here(scope, var->name);
    const Value* value = scope.find(var->name);
    if (value != nullptr && std::holds_alternative<SelectedRows>(*value)) {
      encode_paddle(std::get<SelectedRows>(*value), bytes);
    } else {
      encode_paddle(scope.tensor(var->name), bytes);
    }
    if (!params.empty()) continue;
    write_file_atomically(file_of(directory, var->name), bytes);
    bytes.clear();
  }
  if (!params.empty()) write_file_atomically(directory / params, bytes);
}

}  // namespace fleet::fluid::io
