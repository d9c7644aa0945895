#include "tools/inspect/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/checkpoint_store.h"

namespace fleet::inspect {
namespace {

using fluid::io::CheckpointReader;
using fluid::io::CheckpointStore;
using fluid::io::kCheckpointManifest;
using fluid::io::StoredCheckpoint;
using std::filesystem::path;

bool is_checkpoint(const path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / kCheckpointManifest, error);
}

// Without a separator at its end, after which it would have no name.
path without_end(const path& folder) {
  return folder.has_filename() || !folder.has_parent_path() ? folder : folder.parent_path();
}

[[noreturn]] void throw_no_checkpoint(const path& where) {
  std::error_code error;
  const bool exists = std::filesystem::exists(where, error);
  const auto unfinished = CheckpointStore(where).list_unfinished().size();
  std::vector<std::string> names;
  const path parent = where.has_parent_path() ? where.parent_path() : path(".");
  for (const StoredCheckpoint& stored : CheckpointStore(parent).list()) {
    names.push_back(stored.folder.filename().string());
  }
  throw_error(ErrorCode::kInput,
              {.what = (exists ? "there is no whole checkpoint" : "there is no such folder") +
                       (exists ? "" : did_you_mean(where.filename().string(), names)),
               .where = where.string(),
               .expected = "a checkpoint, or a folder of checkpoints",
               .got = unfinished > 0 ? str_cat(unfinished, " unfinished") : "none",
               .fix = "give the folder that CheckpointPolicy::folder names, or one step in it"});
}

double age_of(const path& folder) {
  std::error_code error;
  const auto written = std::filesystem::last_write_time(folder / kCheckpointManifest, error);
  if (error) return 0;
  const std::chrono::duration<double> age = std::filesystem::file_time_type::clock::now() - written;
  return std::max(0.0, age.count());
}

fluid::Tensor value_of(const CheckpointReader& reader, const std::string& name) {
  return reader.read(name).value();
}

TensorInfo tensor_info(const std::string& name, const fluid::io::CheckpointTensor& tensor) {
  const auto elements = static_cast<uint64_t>(tensor.shape.numel());
  return {.name = name,
          .tensor = tensor,
          .bytes = elements * dtype_size(tensor.dtype),
          .values = std::nullopt};
}

void take(const CheckpointReader& reader, Checkpoint& checkpoint) {
  checkpoint.info = reader.info();
  checkpoint.bytes = reader.bytes();
  checkpoint.finite = reader.finite();
  for (const auto& [name, tensor] : reader.tensors()) {
    checkpoint.tensors.push_back(tensor_info(name, tensor));
  }
}

void take_tables(const CheckpointReader& reader, bool values, Checkpoint& checkpoint) {
  for (const auto& [name, files] : reader.tables()) {
    const TableInfo& table = checkpoint.tables.emplace_back(table_info(name, files, values));
    if (table.values && table.values->nonfinite > 0) checkpoint.finite = false;
  }
}

// What is wrong with it is its status.
Checkpoint checkpoint_at(const path& folder, int64_t step) {
  Checkpoint checkpoint{.folder = folder, .status = {}, .age_s = age_of(folder), .info = {}};
  checkpoint.info.step = step;
  const auto reader = CheckpointReader::open(folder);
  checkpoint.status = reader.status();
  if (reader.ok()) take(reader.value(), checkpoint);
  return checkpoint;
}

std::vector<InfoDifference> info_differences(const fluid::io::CheckpointInfo& a,
                                             const fluid::io::CheckpointInfo& b) {
  const InfoFields fields = fields_of(a);
  const InfoFields other_fields = fields_of(b);
  std::map<std::string, std::string> others(other_fields.begin(), other_fields.end());
  std::vector<InfoDifference> differences;
  for (const auto& [field, value] : fields) {
    const auto other = others.extract(field);
    if (other.empty()) {
      differences.push_back({field, value, std::nullopt});
    } else if (other.mapped() != value) {
      differences.push_back({field, value, other.mapped()});
    }
  }
  for (const auto& [field, value] : others) differences.push_back({field, std::nullopt, value});
  return differences;
}

// Nothing when the tensors are equal.
std::optional<TensorDifference> tensor_difference(const CheckpointReader& a,
                                                  const CheckpointReader& b,
                                                  const std::string& name) {
  const auto info_in = [&name](const CheckpointReader& reader) -> std::optional<TensorInfo> {
    const auto found = reader.tensors().find(name);
    if (found == reader.tensors().end()) return std::nullopt;
    return tensor_info(name, found->second);
  };
  TensorDifference found{name, info_in(a), info_in(b), std::nullopt};
  if (!found.a || !found.b) return found;
  const auto& first = found.a->tensor;
  const auto& second = found.b->tensor;
  if (first.dtype != second.dtype || !(first.shape == second.shape)) return found;
  found.values = difference(value_of(a, name), value_of(b, name));
  if (found.values->elements == 0) return std::nullopt;
  return found;
}

// Nothing when the tables are equal.
std::optional<TableDifference> table_difference(const CheckpointReader& a,
                                                const CheckpointReader& b,
                                                const std::string& name) {
  const auto info_in = [&name](const CheckpointReader& reader) -> std::optional<TableInfo> {
    const auto found = reader.tables().find(name);
    if (found == reader.tables().end()) return std::nullopt;
    return table_info(name, found->second, /*values=*/false);
  };
  TableDifference found{name, info_in(a), info_in(b), std::nullopt};
  if (!found.a || !found.b) return found;
  if (found.a->width != found.b->width || found.a->states != found.b->states) return found;
  found.rows =
      row_difference({a.tables().at(name), found.a->rows}, {b.tables().at(name), found.b->rows});
  if (found.rows->none()) return std::nullopt;
  return found;
}

template <class Things>
void add_names(const Things& things, std::set<std::string>& names) {
  for (const auto& [name, thing] : things) names.insert(name);
}

}  // namespace

path find_checkpoint(const path& given) {
  path where = without_end(given);
  if (is_checkpoint(where)) return where;
  const auto stored = CheckpointStore(where).list();
  if (stored.empty()) throw_no_checkpoint(where);
  return stored.front().folder;
}

Checkpoint read_checkpoint(const path& given, bool values) {
  const path folder = find_checkpoint(given);
  const CheckpointReader reader = CheckpointReader::open(folder).value();
  Checkpoint checkpoint{.folder = folder, .status = {}, .age_s = age_of(folder), .info = {}};
  take(reader, checkpoint);
  take_tables(reader, values, checkpoint);
  for (TensorInfo& tensor : checkpoint.tensors) {
    if (values) tensor.values = summarize(value_of(reader, tensor.name));
  }
  return checkpoint;
}

Listing list_checkpoints(const path& given) {
  Listing listing{.folder = without_end(given), .checkpoints = {}, .unfinished = {}};
  std::error_code error;
  if (!std::filesystem::is_directory(listing.folder, error)) throw_no_checkpoint(listing.folder);
  if (is_checkpoint(listing.folder)) {
    throw_error(ErrorCode::kInput, {.what = "the folder is itself a checkpoint",
                                    .where = listing.folder.string(),
                                    .expected = "a folder of checkpoints",
                                    .got = "one checkpoint",
                                    .fix = "give the folder above, or use show"});
  }
  const CheckpointStore store(listing.folder);
  for (const StoredCheckpoint& stored : store.list()) {
    listing.checkpoints.push_back(checkpoint_at(stored.folder, stored.step));
  }
  for (const StoredCheckpoint& left : store.list_unfinished()) {
    listing.unfinished.push_back(left.folder.filename().string());
  }
  return listing;
}

std::vector<Verified> verify(const path& given) {
  const path where = without_end(given);
  std::vector<path> folders;
  if (is_checkpoint(where)) folders.push_back(where);
  if (folders.empty()) {
    for (const StoredCheckpoint& stored : CheckpointStore(where).list()) {
      folders.push_back(stored.folder);
    }
  }
  if (folders.empty()) throw_no_checkpoint(where);
  std::vector<Verified> verified;
  verified.reserve(folders.size());
  for (const path& folder : folders) {
    verified.push_back({checkpoint_at(folder, 0), CheckpointReader::find_damage(folder)});
  }
  return verified;
}

bool all_whole(const std::vector<Verified>& checkpoints) {
  return std::all_of(checkpoints.begin(), checkpoints.end(),
                     [](const Verified& one) { return one.damage.empty(); });
}

InfoFields fields_of(const fluid::io::CheckpointInfo& info) {
  InfoFields fields = {{"step", str_cat(info.step)},
                       {"epoch", str_cat(info.epoch)},
                       {"mode", info.mode},
                       {"workers", str_cat(info.workers)},
                       {"servers", str_cat(info.servers)},
                       {"logical_shards", str_cat(info.logical_shards)},
                       {"program", info.program},
                       {"strategy", info.strategy}};
  for (const auto& [name, position] : info.readers) {
    fields.emplace_back("readers/" + name, str_cat(position));
  }
  for (const auto& [name, value] : info.values) fields.emplace_back("values/" + name, value);
  return fields;
}

Comparison compare(const path& a, const path& b) {
  Comparison comparison{
      .a = find_checkpoint(a), .b = find_checkpoint(b), .info = {}, .tensors = {}, .tables = {}};
  const CheckpointReader first = CheckpointReader::open(comparison.a).value();
  const CheckpointReader second = CheckpointReader::open(comparison.b).value();
  comparison.info = info_differences(first.info(), second.info());
  std::set<std::string> names;
  std::set<std::string> tables;
  for (const CheckpointReader* reader : {&first, &second}) {
    add_names(reader->tensors(), names);
    add_names(reader->tables(), tables);
  }
  for (const std::string& name : names) {
    if (auto found = tensor_difference(first, second, name)) {
      comparison.tensors.push_back(std::move(*found));
    } else {
      ++comparison.equal;
    }
  }
  for (const std::string& name : tables) {
    if (auto found = table_difference(first, second, name)) {
      comparison.tables.push_back(std::move(*found));
    } else {
      ++comparison.equal_tables;
    }
  }
  return comparison;
}

}  // namespace fleet::inspect
