#include "fluid/io/persistables.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"
#include "fluid/io/growing_tables.h"

namespace fleet::fluid {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxManifest = size_t{64} << 20;
constexpr size_t kMaxParameters = size_t{1} << 40;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void throw_corrupt(const std::filesystem::path& path, std::string what,
                                std::string expected, std::string got) {
  throw_error(ErrorCode::kCorruptFile, {.what = std::move(what),
                                        .where = "file " + path.string(),
                                        .expected = std::move(expected),
                                        .got = std::move(got),
                                        .fix = "save the model again"});
}

Json read_manifest(const std::filesystem::path& directory) {
  return Json::parse(text_of(read_whole_file(directory / kManifestFile, kMaxManifest)), nullptr,
                     false);
}

// What a manifest says of growing tables; nothing for one that is damaged, or says nothing.
io::SavedTables tables_in(const Json& manifest) {
  io::SavedTables tables;
  if (!manifest.is_object() || !manifest.contains("tables")) return tables;
  const Json& entries = manifest["tables"];
  if (!entries.is_object()) return tables;
  for (const auto& [name, files] : entries.items()) {
    for (const Json& file : files.is_array() ? files : Json::array({files})) {
      if (!file.is_string()) continue;
      const std::filesystem::path path = file.get<std::string>();
      const bool here = path.filename() == path && path.extension() == ".table";
      if (here) tables.files[name].push_back(path.string());
    }
  }
  const Json makers = manifest.value("table_makers", Json());
  if (makers.is_string()) tables.makers = makers.get<std::string>();
  return tables;
}

}  // namespace

io::SavedTables io::saved_tables(const std::filesystem::path& folder) {
  return tables_in(read_manifest(folder));
}

namespace {

// Of what the directory held before, if it held anything.
io::SavedTables former_tables(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::exists(directory / kManifestFile, error)) return {};
  return tables_in(read_manifest(directory));
}

// Fails unless the parameter file is the one that the manifest was written for.
void check_manifest(const std::filesystem::path& directory,
                    const std::vector<std::byte>& parameters) {
  const std::filesystem::path path = directory / kManifestFile;
  const Json manifest = read_manifest(directory);
  if (!manifest.is_object() || !manifest.contains("format_version") ||
      !manifest["format_version"].is_number_integer()) {
    throw_corrupt(path, "the manifest is not readable", "a JSON object with format_version",
                  "something else");
  }
  const auto version = manifest["format_version"].get<int64_t>();
  if (version != kManifestVersion) {
    throw_corrupt(path, "the manifest has another format version", str_cat(kManifestVersion),
                  str_cat(version));
  }
  const auto sum = static_cast<uint64_t>(crc32c(parameters));
  if (manifest.value("bytes", Json()) != Json(parameters.size()) ||
      manifest.value("crc32c", Json()) != Json(sum)) {
    throw_corrupt(directory / kParameterFile, "the parameter file does not belong to the manifest",
                  str_cat(manifest.value("bytes", Json()).dump(), " bytes, checksum ",
                          manifest.value("crc32c", Json()).dump()),
                  str_cat(parameters.size(), " bytes, checksum ", sum));
  }
}

// The manifest last. Tables of the save before stay until it is there; its parameters do not, and
// the manifest's checksum tells.
void save_all(const std::filesystem::path& directory, const NamedTensors& tensors,
              const std::vector<std::string>& tables, io::TableWriter& writer) {
  const io::SavedTables former = former_tables(directory);
  const io::SavedTables saved = io::write_tables(directory, tables, writer, former);
  const std::vector<std::byte> bytes = encode_safetensors(tensors);
  Json manifest = {{"format_version", kManifestVersion},
                   {"file", kParameterFile},
                   {"bytes", bytes.size()},
                   {"crc32c", static_cast<uint64_t>(crc32c(bytes))},
                   {"tensors", Json::object()}};
  for (const auto& [name, tensor] : tensors) {
    manifest["tensors"][name] = {{"dtype", std::string(dtype_name(tensor.dtype()))},
                                 {"shape", tensor.shape().to_vector()}};
  }
  if (!saved.files.empty()) {
    for (const auto& [name, files] : saved.files) {
      manifest["tables"][name] = files.size() == 1 ? Json(files.front()) : Json(files);
    }
    manifest["table_makers"] = saved.makers;
  }
  const std::string text = manifest.dump(2) + "\n";
  write_file_atomically(directory / kParameterFile, bytes);
  write_file_atomically(directory / kManifestFile, std::as_bytes(std::span(text)));
  io::remove_tables(directory, former, saved);
}

}  // namespace

std::vector<const VarDesc*> persistables(const Program& program) {
  std::vector<const VarDesc*> found;
  for (const VarDesc* var : program.global_block().vars()) {
    if (var->persistable && var->typed && var->kind == VarKind::kLodTensor) {
      found.push_back(var);
    }
  }
  return found;
}

void save_tensors(const std::filesystem::path& directory, const NamedTensors& tensors) {
  save_all(directory, tensors, {}, *io::tables_of_scope(Scope(), true));
}

void require_value_here(const Scope& scope, const std::string& name) {
  if (scope.keeper(name) == nullptr) return;
  throw_error(ErrorCode::kPrecondition,
              {.what = "the rows of a table are on the servers of the job, not in this worker",
               .where = "variable '" + name + "'",
               .expected = "a value",
               .got = "its shape",
               .fix = "call fleet::save_inference_model or fleet::save_persistables in every "
                      "worker; without the facade, io::save_inference_model with the job's "
                      "runtime"});
}

void save_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program) {
  executor.look_at_steps();
  save_persistables(executor.scope(), directory, program);
}

void save_persistables(const Scope& scope, const std::filesystem::path& directory,
                       const Program& program) {
  save_persistables(scope, directory, program, *io::tables_of_scope(scope, true));
}

void save_persistables(const Scope& scope, const std::filesystem::path& directory,
                       const Program& program, io::TableWriter& tables) {
  NamedTensors tensors;
  for (const VarDesc* var : persistables(program)) {
    require_value_here(scope, var->name);
    const Tensor& value = scope.tensor(var->name);
    if (!value.initialized()) {
      throw_error(ErrorCode::kPrecondition, {.what = "a persistable variable has no value yet",
                                             .where = "variable '" + var->name + "'",
                                             .expected = "a value",
                                             .got = "nothing",
                                             .fix = "run the startup program first"});
    }
    tensors.emplace(var->name, value);
  }
  std::vector<std::string> names;
  for (const VarDesc* var : growing_tables(program)) names.push_back(var->name);
  save_all(directory, tensors, names, tables);
}

NamedTensors load_tensors(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kParameterFile;
  check_manifest(directory, read_whole_file(path, kMaxParameters));
  const SafetensorsReader reader = SafetensorsReader::open(path).value();
  NamedTensors tensors;
  for (const auto& [name, entry] : reader.entries()) {
    tensors.emplace(name, reader.read(name).value());
  }
  return tensors;
}

void load_persistables(Executor& executor, const std::filesystem::path& directory,
                       const Program& program, CommRuntime* keeper) {
  NamedTensors tensors = load_tensors(directory);
  const auto wanted = persistables(program);
  for (const VarDesc* var : wanted) {
    const auto found = tensors.find(var->name);
    const bool missing = found == tensors.end();
    if (!missing && found->second.dtype() == var->dtype &&
        var->shape.compatible(found->second.shape())) {
      continue;
    }
    throw_error(missing ? ErrorCode::kInvalidProgram : ErrorCode::kShapeMismatch,
                {.what = missing ? "the saved model lacks a variable of the program"
                                 : "a saved variable has another type or shape",
                 .where = str_cat("variable '", var->name, "' in ", directory.string()),
                 .expected = str_cat(dtype_name(var->dtype), var->shape),
                 .got = missing ? "nothing"
                                : str_cat(dtype_name(found->second.dtype()), found->second.shape()),
                 .fix = "load a model that this program saved"});
  }
  const io::SavedTables saved = io::saved_tables(directory);
  io::NamedTables grown;
  if (keeper == nullptr || !keeper->keeps_tables()) {
    grown = io::read_tables(directory, saved, program, executor.scope());
  } else {
    CommRuntime::FilesOfTables files;
    for (const VarDesc* var : growing_tables(program)) {
      files[var->name] = io::files_of(directory, saved, var->name);
    }
    if (!files.empty()) keeper->load_tables(files);
  }
  for (const VarDesc* var : wanted) {
    executor.scope().var(var->name) = std::move(tensors.at(var->name));
  }
  for (auto& [name, table] : grown) {
    executor.scope().var(name) = tables::table_value(std::move(table));
  }
}

}  // namespace fleet::fluid
