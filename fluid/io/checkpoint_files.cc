#include "fluid/io/checkpoint_files.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/core/nonfinite.h"
#include "fluid/io/atomic_file.h"
#include "fluid/io/strict_json_impl.h"

namespace fleet::fluid::io {
namespace {

using Json = nlohmann::json;
using std::filesystem::path;

constexpr size_t kMaxList = size_t{256} << 20;
// Of the numbers of a shape, in the list of tensors of the manifest.
constexpr int kMaxDepth = 5;
constexpr const char* kBegun = "begun";
// Of a value in a message.
constexpr size_t kMostShown = 60;

std::string part_name(int part, int parts) {
  return str_cat("part-", part, "-of-", parts);
}

void write_json(const path& file, const Json& json, FileSystem& files) {
  const std::string text = json.dump(2) + "\n";
  write_file_atomically(file, std::as_bytes(std::span(text)), files);
}

ErrorText damage(const path& file, std::string what, std::string expected, std::string got) {
  return {.what = std::move(what),
          .where = "file " + file.string(),
          .expected = std::move(expected),
          .got = std::move(got),
          .fix = "take an older checkpoint, or copy the file anew if this is a copy"};
}

Status corrupt(const path& file, std::string what, std::string expected, std::string got) {
  return {ErrorCode::kCorruptFile,
          damage(file, std::move(what), std::move(expected), std::move(got))};
}

[[noreturn]] void refuse(const path& file, std::string what, std::string expected,
                         std::string got) {
  throw_error(ErrorCode::kCorruptFile,
              damage(file, std::move(what), std::move(expected), std::move(got)));
}

// JSON has no other texts.
void require_utf8(const path& file, const Json& fields) {
  for (const auto& [name, value] : fields.items()) {
    try {
      (void)value.dump();
    } catch (const Json::type_error& error) {
      throw_error(ErrorCode::kInput, {.what = "a text of the checkpoint is not UTF-8",
                                      .where = str_cat("'", name, "' of ", file.string()),
                                      .expected = "UTF-8",
                                      .got = error.what(),
                                      .fix = "write other bytes as hexadecimal digits"});
    }
  }
}

// Of the whole object but its own entry.
uint32_t checksum_of(Json manifest) {
  manifest.erase("crc32c");
  const std::string text = manifest.dump();
  return crc32c(std::as_bytes(std::span(text)));
}

// Throws ResourceError.
Json read_json(const path& file, FileSystem& files) {
  const std::vector<std::byte> bytes = read_whole_file(file, kMaxList, files);
  Json json =
      parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, kMaxDepth);
  if (!json.is_object()) {
    refuse(file, "the file is not readable", "a JSON object", "something else");
  }
  return json;
}

// An object of a file. What is missing or of another kind throws ResourceError with its name.
class Fields {
 public:
  Fields(const path& file, const Json& object, std::string name = {})
      : file_(&file), object_(&object), name_(std::move(name)) {
    if (!object.is_object()) wrong(name_, "an object", object);
  }

  const Json& json() const { return *object_; }
  std::string text(const std::string& key) const {
    const Json& value = at(key);
    if (!value.is_string()) wrong(name_of(key), "a text", value);
    return value.get<std::string>();
  }
  bool flag(const std::string& key, bool otherwise) const {
    if (!object_->contains(key)) return otherwise;
    const Json& value = at(key);
    if (!value.is_boolean()) wrong(name_of(key), "true or false", value);
    return value.get<bool>();
  }
  template <class Integer>
  Integer number(const std::string& key,
                 Integer least = std::numeric_limits<Integer>::min()) const {
    const Json& value = at(key);
    const bool fits = value.is_number_unsigned() ? std::in_range<Integer>(value.get<uint64_t>())
                                                 : value.is_number_integer() &&
                                                       std::in_range<Integer>(value.get<int64_t>());
    if (!fits || value.get<Integer>() < least) {
      wrong(name_of(key),
            str_cat("a whole number from ", least, " to ", std::numeric_limits<Integer>::max()),
            value);
    }
    return value.get<Integer>();
  }
  std::vector<int64_t> numbers(const std::string& key) const {
    const Json& values = at(key);
    const bool fits = values.is_array() &&
                      std::all_of(values.begin(), values.end(),
                                  [](const Json& value) { return value.is_number_integer(); });
    if (!fits) wrong(name_of(key), "a list of whole numbers", values);
    return values.get<std::vector<int64_t>>();
  }
  Fields object(const std::string& key) const { return {*file_, at(key), name_of(key)}; }
  std::vector<Fields> objects(const std::string& key) const {
    const Json& values = at(key);
    if (!values.is_array()) wrong(name_of(key), "a list", values);
    std::vector<Fields> found;
    for (const Json& value : values) found.push_back({*file_, value, name_of(key)});
    return found;
  }
  // Of each key, what `get` makes of this object and the key.
  template <class Value>
  std::map<std::string, Value> map(
      const std::function<Value(const Fields&, const std::string&)>& get) const {
    std::map<std::string, Value> values;
    for (const auto& [key, value] : object_->items()) values.emplace(key, get(*this, key));
    return values;
  }

 private:
  const Json& at(const std::string& key) const {
    const auto found = object_->find(key);
    if (found == object_->end()) {
      refuse(*file_, "a field is missing", "'" + name_of(key) + "'", "nothing");
    }
    return *found;
  }
  std::string name_of(const std::string& key) const {
    return name_.empty() ? key : name_ + "/" + key;
  }
  [[noreturn]] void wrong(const std::string& name, const std::string& expected,
                          const Json& value) const {
    refuse(*file_, "a field is not what it should be", str_cat(expected, " for '", name, "'"),
           value.dump().substr(0, kMostShown));
  }

  const path* file_;
  const Json* object_;
  std::string name_;
};

Json to_json(const CheckpointRows& rows) {
  return {{"variable", rows.of},
          {"shape", rows.shape.to_vector()},
          {"first", rows.first},
          {"stride", rows.stride}};
}

Json to_json(const CheckpointInfo& info) {
  return {
      {"step", info.step},       {"epoch", info.epoch},     {"worker_steps", info.worker_steps},
      {"mode", info.mode},       {"program", info.program}, {"strategy", info.strategy},
      {"workers", info.workers}, {"servers", info.servers}, {"logical_shards", info.logical_shards},
      {"readers", info.readers}, {"values", info.values}};
}

template <class Integer>
Integer number_of(const Fields& fields, const std::string& key) {
  return fields.number<Integer>(key);
}

CheckpointInfo info_of(const Fields& fields) {
  return {.step = fields.number<int64_t>("step", 0),
          .worker_steps = fields.numbers("worker_steps"),
          .epoch = fields.number<int64_t>("epoch"),
          .mode = fields.text("mode"),
          .program = fields.text("program"),
          .strategy = fields.text("strategy"),
          .workers = fields.number<int>("workers", 0),
          .servers = fields.number<int>("servers", 0),
          .logical_shards = fields.number<int>("logical_shards", 0),
          .readers = fields.object("readers").map<int64_t>(number_of<int64_t>),
          .values = fields.object("values").map<std::string>(&Fields::text)};
}

// Of each growing table, its files and their sizes.
std::map<std::string, std::vector<std::pair<std::string, uint64_t>>> tables_of(
    const Fields& fields) {
  std::map<std::string, std::vector<std::pair<std::string, uint64_t>>> tables;
  for (const auto& [name, list] : fields.json().items()) {
    for (const Fields& entry : fields.objects(name)) {
      tables[name].emplace_back(entry.text("file"), entry.number<uint64_t>("bytes"));
    }
  }
  return tables;
}

int64_t height_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[0];
}

// Of a tensor that is there as the manifest says.
CheckpointPiece piece_of(const Fields& fields, const std::string& name,
                         const SafetensorsReader::Entry& entry) {
  return {.file = fields.text("file"),
          .name = name,
          .rows = height_of(entry.shape),
          .crc32c = fields.number<uint32_t>("crc32c"),
          .finite = fields.flag("finite", true)};
}

Shape shape_of(const path& file, const std::vector<int64_t>& dims) {
  const bool fits = dims.size() <= static_cast<size_t>(Shape::kMaxRank) &&
                    std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
  if (!fits) refuse(file, "a variable has no such shape", "dimensions from 0 on", join(dims, ", "));
  return Shape(dims);
}

// Whether rows of such a tensor can be those of the variable, inside of it.
bool fits(const CheckpointTensor& whole, const SafetensorsReader::Entry& entry,
          const CheckpointPiece& piece) {
  const Shape& shape = whole.shape;
  if (entry.dtype != whole.dtype || entry.shape.rank() != shape.rank() || shape.rank() == 0) {
    return false;
  }
  for (int i = 1; i < shape.rank(); ++i) {
    if (entry.shape[i] != shape[i]) return false;
  }
  if (piece.rows == 0) return true;
  return piece.first < shape[0] && (shape[0] - 1 - piece.first) / piece.stride >= piece.rows - 1;
}

// Each of its rows is in one piece.
bool is_whole(const CheckpointTensor& tensor) {
  const int64_t height = height_of(tensor.shape);
  int64_t rows = 0;
  for (const CheckpointPiece& piece : tensor.pieces) {
    if (piece.rows > height - rows) return false;
    rows += piece.rows;
  }
  if (rows != height) return false;
  if (tensor.pieces.size() == 1 && tensor.pieces.front().stride == 1) return true;
  std::vector<bool> found(static_cast<size_t>(height));
  for (const CheckpointPiece& piece : tensor.pieces) {
    for (int64_t i = 0; i < piece.rows; ++i) {
      const auto row = static_cast<size_t>(piece.first + i * piece.stride);
      if (found[row]) return false;
      found[row] = true;
    }
  }
  return true;
}

// No way out of the folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && path(name).filename() == path(name);
}

bool is_finite(const Tensor& tensor) {
  // float16 and bfloat16: all bits of the exponent are set.
  const auto all_below = [&tensor](uint16_t exponent) {
    const auto* words = reinterpret_cast<const uint16_t*>(tensor.raw());
    return std::all_of(words, words + tensor.numel(),
                       [exponent](uint16_t word) { return (word & exponent) != exponent; });
  };
  if (tensor.dtype() == DType::kFloat16) return all_below(0x7C00);
  if (tensor.dtype() == DType::kBFloat16) return all_below(0x7F80);
  return !first_nonfinite(tensor).has_value();
}

// Row i is the variable's row first + i * stride.
struct Rows {
  int64_t first = 0;
  int64_t stride = 1;
  int64_t count = 0;
  int64_t end() const { return count == 0 ? first : first + (count - 1) * stride + 1; }
  bool operator==(const Rows&) const = default;
};

Rows rows_of(const CheckpointPiece& piece) {
  return {.first = piece.first, .stride = piece.stride, .count = piece.rows};
}

// Whether they may have rows in common.
bool meet(const Rows& a, const Rows& b) {
  return a.first < b.end() && b.first < a.end() &&
         (a.first - b.first) % std::gcd(a.stride, b.stride) == 0;
}

// Those rows of `from` that `to` has, too.
void copy_rows(const Tensor& from, const Rows& of_from, Tensor& to, const Rows& of_to) {
  const bool one_range = of_from.stride == 1 && of_to.stride == 1;
  int64_t row = std::max(of_from.first, of_to.first);
  const int64_t end = std::min(of_from.end(), of_to.end());
  if (one_range) {
    to.rows(row - of_to.first, end - of_to.first)
        .copy_from(from.rows(row - of_from.first, end - of_from.first));
    return;
  }
  // The next of `from`; of those, the ones of `to`.
  row += (of_from.stride - (row - of_from.first) % of_from.stride) % of_from.stride;
  for (; row < end; row += of_from.stride) {
    if ((row - of_to.first) % of_to.stride != 0) continue;
    const int64_t source = (row - of_from.first) / of_from.stride;
    const int64_t target = (row - of_to.first) / of_to.stride;
    to.rows(target, target + 1).copy_from(from.rows(source, source + 1));
  }
}

uint64_t size_of(const path& file, FileSystem& files, std::error_code& error) {
  const auto opened = files.open(file, error);
  return error ? 0 : opened->size();
}

uint64_t written_bytes(const path& file, FileSystem& files) {
  std::error_code error;
  const uint64_t bytes = size_of(file, files, error);
  if (error) refuse(file, "a file that was written is gone", "its size", error.message());
  return bytes;
}

// Of a tensor's elements, as they are written.
struct Summary {
  uint32_t crc32c = 0;
  bool finite = true;

  void add(const Tensor& elements) {
    crc32c = fleet::crc32c({elements.raw(), elements.bytes()}, crc32c);
    finite = finite && is_finite(elements);
  }
};

}  // namespace

bool CheckpointTensor::finite() const {
  return std::all_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.finite; });
}

std::string CheckpointTensor::files() const {
  std::vector<std::string> names;
  for (const CheckpointPiece& piece : pieces) {
    if (std::find(names.begin(), names.end(), piece.file) == names.end())
      names.push_back(piece.file);
  }
  return join(names, ", ");
}

void begin_checkpoint(const path& folder, FileSystem& files) {
  write_file_atomically(folder / kBegun, {}, files);
}

bool is_checkpoint_begun(const path& folder, FileSystem& files) {
  return files.exists(folder / kBegun);
}

path checkpoint_table_file(const path& folder, const std::string& table, int part, int parts) {
  return folder / str_cat(part_name(part, parts), ".", file_name_of(table), ".table");
}

void write_checkpoint_part(const path& folder, int part, int parts, const NamedTensors& tensors,
                           FileSystem& files, const CheckpointRowsByName& rows,
                           const CheckpointTables& tables) {
  const std::string name = part_name(part, parts);
  const std::string file = name + ".safetensors";
  std::map<std::string, Summary> summaries;
  write_safetensors(folder / file, tensors, {}, files,
                    [&summaries](const std::string& tensor_name, const Tensor& elements) {
                      summaries[tensor_name].add(elements);
                    });
  Json list = Json::object();
  for (const auto& [tensor_name, tensor] : tensors) {
    const Summary& summary = summaries[tensor_name];
    Json entry = {{"file", file},
                  {"dtype", std::string(dtype_name(tensor.dtype()))},
                  {"shape", tensor.shape().to_vector()},
                  {"crc32c", summary.crc32c}};
    if (!summary.finite) entry["finite"] = false;
    const auto of = rows.find(tensor_name);
    if (of != rows.end()) entry["rows"] = to_json(of->second);
    list[tensor_name] = std::move(entry);
  }
  Json saved = Json::object();
  for (const auto& [variable, save] : tables) {
    const uint64_t count = save->finish();
    saved[variable] = {{"file", save->file().filename().string()},
                       {"bytes", written_bytes(save->file(), files)},
                       {"rows", count}};
  }
  Json all = {
      {"bytes", written_bytes(folder / file, files)}, {"file", file}, {"tensors", std::move(list)}};
  if (!saved.empty()) all["tables"] = std::move(saved);
  write_json(folder / (name + ".json"), all, files);
}

void give_up_checkpoint_part(const path& folder, int part, int parts, const std::string& why,
                             FileSystem& files, const CheckpointTables& tables) {
  // The text may hold a path, which need not be UTF-8.
  const std::string text =
      Json{{"failed", why}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  static_cast<void>(files.remove(folder / (part_name(part, parts) + ".safetensors")));
  for (const auto& [variable, save] : tables) static_cast<void>(files.remove(save->file()));
  try {
    write_file_atomically(folder / (part_name(part, parts) + ".json"),
                          std::as_bytes(std::span(text)), files);
  } catch (const ResourceError&) {
    // Whoever waits has a deadline.
  }
}

std::vector<int> missing_checkpoint_parts(const path& folder, int parts, FileSystem& files) {
  std::vector<int> missing;
  for (int part = 0; part < parts; ++part) {
    const path file = folder / (part_name(part, parts) + ".json");
    if (!files.exists(file)) {
      missing.push_back(part);
      continue;
    }
    const Json list = read_json(file, files);
    const auto failed = list.find("failed");
    if (failed == list.end()) continue;
    throw_error(ErrorCode::kInput,
                {.what = "another process could not write its part of a checkpoint",
                 .where = str_cat("part ", part, " of ", folder.string()),
                 .expected = "a file",
                 .got = failed->is_string() ? failed->get<std::string>() : "nothing",
                 .fix = "see the log of that process; check the free space"});
  }
  return missing;
}

void write_checkpoint_manifest(const path& folder, const CheckpointInfo& info, int parts,
                               FileSystem& files) {
  const path file = folder / kCheckpointManifest;
  Json manifest = to_json(info);
  require_utf8(file, manifest);
  manifest["format_version"] = kCheckpointVersion;
  manifest["files"] = Json::object();
  manifest["tensors"] = Json::object();
  std::vector<path> lists;
  for (int part = 0; part < parts; ++part) {
    lists.push_back(folder / (part_name(part, parts) + ".json"));
    const Json json = read_json(lists.back(), files);
    const Fields list(lists.back(), json);
    manifest["files"][list.text("file")] = list.number<uint64_t>("bytes");
    manifest["tensors"].update(list.object("tensors").json());
    if (!json.contains("tables")) continue;
    for (const auto& [table, entry] : list.object("tables").json().items()) {
      manifest["tables"][table].push_back(entry);
    }
  }
  manifest["crc32c"] = checksum_of(manifest);
  write_json(file, manifest, files);
  // What stays of them harms nobody.
  lists.push_back(folder / kBegun);
  for (const path& list : lists) static_cast<void>(files.remove(list));
}

void CheckpointReader::read_manifest(std::vector<Status>& wrong) {
  const path file = folder_ / kCheckpointManifest;
  const Json json = read_json(file, *disk_);
  const Fields manifest(file, json);
  const auto version = manifest.number<int64_t>("format_version");
  if (version != kCheckpointVersion) {
    ErrorText text = damage(file, str_cat("the checkpoint has format version ", version),
                            str_cat(kCheckpointVersion), str_cat(version));
    if (version > kCheckpointVersion) text.fix = "read it with the Fleet that wrote it";
    throw_error(ErrorCode::kCorruptFile, std::move(text));
  }
  const uint32_t sum = checksum_ = checksum_of(json);
  if (const auto expected = manifest.number<uint32_t>("crc32c"); expected != sum) {
    refuse(file, "the manifest is damaged", str_cat("checksum ", expected), str_cat(sum));
  }
  info_ = info_of(manifest);
  const auto sizes = manifest.object("files").map<uint64_t>(number_of<uint64_t>);
  for (const auto& [name, size] : sizes) {
    if (Status opened = open_file(name, size); !opened.ok()) wrong.push_back(std::move(opened));
  }
  if (json.contains("tables")) find_tables(tables_of(manifest.object("tables")), wrong);
  for (const auto& [name, of] : manifest.object("tensors").map<Fields>(&Fields::object)) {
    const std::string in = of.text("file");
    const auto found = files_.find(in);
    // What is wrong with the file is said.
    if (found == files_.end() && sizes.contains(in)) continue;
    if (found == files_.end() || !found->second.contains(name)) {
      wrong.push_back(corrupt(folder_ / in, "a tensor is not in its file", "tensor '" + name + "'",
                              "none of that name"));
      continue;
    }
    const SafetensorsReader::Entry& entry = found->second.entries().at(name);
    const std::string dtype = of.text("dtype");
    const std::vector<int64_t> shape = of.numbers("shape");
    if (dtype != dtype_name(entry.dtype) || shape != entry.shape.to_vector()) {
      wrong.push_back(corrupt(folder_ / in, "tensor '" + name + "' is not what the manifest says",
                              str_cat(dtype, "[", join(shape, ", "), "]"),
                              str_cat(dtype_name(entry.dtype), entry.shape)));
      continue;
    }
    CheckpointPiece piece = piece_of(of, name, entry);
    CheckpointTensor whole = {.dtype = entry.dtype, .shape = entry.shape, .pieces = {}};
    std::string variable = name;
    if (of.json().contains("rows")) {
      const Fields rows = of.object("rows");
      variable = rows.text("variable");
      whole.shape = shape_of(file, rows.numbers("shape"));
      piece.first = rows.number<int64_t>("first", 0);
      piece.stride = rows.number<int64_t>("stride", 1);
    }
    const bool is_part = of.json().contains("rows") || tensors_.contains(variable);
    CheckpointTensor& tensor = tensors_.emplace(variable, std::move(whole)).first->second;
    if (is_part && !fits(tensor, entry, piece)) {
      wrong.push_back(
          corrupt(folder_ / in, "tensor '" + name + "' is not of its variable",
                  str_cat("rows of '", variable, "', ", dtype_name(tensor.dtype), tensor.shape),
                  str_cat(dtype_name(entry.dtype), entry.shape)));
      continue;
    }
    tensor.pieces.push_back(std::move(piece));
  }
  for (const auto& [name, tensor] : tensors_) {
    if (!is_whole(tensor)) {
      wrong.push_back(corrupt(file, "rows of variable '" + name + "' are missing, or there twice",
                              str_cat("each of ", height_of(tensor.shape), " rows once"),
                              "others, in " + tensor.files()));
    }
  }
}

void CheckpointReader::find_tables(const TableFiles& tables, std::vector<Status>& wrong) {
  for (const auto& [name, files_of] : tables) {
    for (const auto& [file, bytes] : files_of) {
      Status there = find_file(file, bytes);
      if (there.ok()) {
        tables_[name].push_back(folder_ / file);
      } else {
        wrong.push_back(std::move(there));
      }
    }
  }
}

// It is in the folder, and of this size.
Status CheckpointReader::find_file(const std::string& name, uint64_t size) {
  if (!is_plain_name(name)) {
    return corrupt(folder_ / kCheckpointManifest, "a file of the checkpoint is elsewhere",
                   "a name without folders", "'" + name + "'");
  }
  const path file = folder_ / name;
  std::error_code error;
  const uint64_t found = size_of(file, *disk_, error);
  if (error || found != size) {
    return corrupt(file, "a file of the checkpoint is missing or of another size",
                   str_cat(size, " bytes"), error ? error.message() : str_cat(found, " bytes"));
  }
  bytes_ += size;
  return {};
}

Status CheckpointReader::open_file(const std::string& name, uint64_t size) {
  if (Status there = find_file(name, size); !there.ok()) return there;
  auto reader = SafetensorsReader::open(folder_ / name, *disk_);
  if (!reader.ok()) return reader.status();
  files_.emplace(name, std::move(reader).value());
  return {};
}

std::vector<Status> CheckpointReader::read_folder() {
  std::vector<Status> wrong;
  try {
    read_manifest(wrong);
  } catch (const ResourceError& error) {
    wrong.emplace_back(error.code(), error.text());
  }
  return wrong;
}

Result<CheckpointReader> CheckpointReader::open(const path& folder, FileSystem& files) {
  CheckpointReader reader(folder, files);
  const std::vector<Status> wrong = reader.read_folder();
  if (!wrong.empty()) return wrong.front();
  return reader;
}

std::vector<Status> CheckpointReader::find_damage(const path& folder, FileSystem& files) {
  CheckpointReader reader(folder, files);
  std::vector<Status> wrong = reader.read_folder();
  for (const auto& [name, tensor] : reader.tensors_) {
    if (Status status = reader.check(name); !status.ok()) wrong.push_back(std::move(status));
  }
  for (const auto& [name, files_of] : reader.tables_) {
    if (Status status = reader.check_table(name); !status.ok()) wrong.push_back(std::move(status));
  }
  return wrong;
}

bool CheckpointReader::finite() const {
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [](const auto& tensor) { return tensor.second.finite(); });
}

Result<const CheckpointTensor*> CheckpointReader::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return &found->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : tensors_) names.push_back(known);
  return Status(
      ErrorCode::kUnknownName,
      {.what = "the checkpoint holds no such variable" + did_you_mean(name, names),
       .where = folder_.string(),
       .expected = "variable '" + name + "'",
       .got = str_cat(names.size(), " others"),
       .fix = "load a checkpoint of the same program and optimizer, or begin in another folder"});
}

Result<Tensor> CheckpointReader::read(const std::string& name) const {
  const auto found = find(name);
  if (!found.ok()) return found.status();
  Tensor whole(found.value()->dtype, found.value()->shape);
  Status status = read_into(name, whole);
  if (!status.ok()) return status;
  return whole;
}

Status CheckpointReader::read_into(const std::string& name, Tensor& tensor) const {
  const auto found = find(name);
  if (!found.ok()) return found.status();
  const auto& pieces = found.value()->pieces;
  // One without dimensions has no rows.
  return pieces.size() == 1 && pieces.front().stride == 1 ? read_piece_into(pieces.front(), tensor)
                                                          : read_rows_into(name, 0, 1, tensor);
}

Status CheckpointReader::read_rows_into(const std::string& name, int64_t first, int64_t stride,
                                        Tensor& tensor) const {
  const auto found = find(name);
  if (!found.ok()) return found.status();
  const CheckpointTensor& whole = *found.value();
  const Rows wanted = {.first = first, .stride = stride, .count = tensor.shape()[0]};
  for (const CheckpointPiece& piece : whole.pieces) {
    if (rows_of(piece) == wanted) return read_piece_into(piece, tensor);
  }
  if (wanted.end() > height_of(whole.shape)) std::memset(tensor.raw(), 0, tensor.bytes());
  for (const CheckpointPiece& piece : whole.pieces) {
    const Rows here = rows_of(piece);
    if (!meet(here, wanted)) continue;
    const bool in_place =
        here.stride == 1 && stride == 1 && here.first >= first && here.end() <= wanted.end();
    Shape shape = whole.shape;
    shape.set(0, piece.rows);
    Tensor rows =
        in_place ? tensor.rows(here.first - first, here.end() - first) : Tensor(whole.dtype, shape);
    Status status = read_piece_into(piece, rows);
    if (!status.ok()) return status;
    if (!in_place) copy_rows(rows, here, tensor, wanted);
  }
  return {};
}

Status CheckpointReader::check(const std::string& name) const {
  const auto found = find(name);
  if (!found.ok()) return found.status();
  return check_rows(name, 0, 1, height_of(found.value()->shape));
}

Status CheckpointReader::check_table(const std::string& name) const {
  const auto found = tables_.find(name);
  if (found == tables_.end()) {
    return {ErrorCode::kUnknownName,
            {.what = "the checkpoint holds no such growing table",
             .where = folder_.string(),
             .expected = "table '" + name + "'",
             .got = str_cat(tables_.size(), " others"),
             .fix = "load a checkpoint of the same program, or begin in another folder"}};
  }
  try {
    for (const path& file : found->second) {
      tables::TableFileReader reader(file, *disk_);
      tables::PieceHead head;
      std::vector<std::byte> body;
      while (reader.next(head)) reader.read(body);
    }
  } catch (const ResourceError& error) {
    return {error.code(), error.text()};
  }
  return {};
}

Status CheckpointReader::check_rows(const std::string& name, int64_t first, int64_t stride,
                                    int64_t count) const {
  const auto found = find(name);
  if (!found.ok()) return found.status();
  const Rows wanted = {.first = first, .stride = stride, .count = count};
  for (const CheckpointPiece& piece : found.value()->pieces) {
    if (!meet(rows_of(piece), wanted)) continue;
    Status status = check_piece(piece, files_.at(piece.file).checksum(piece.name));
    if (!status.ok()) return status;
  }
  return {};
}

Status CheckpointReader::read_piece_into(const CheckpointPiece& piece, Tensor& tensor) const {
  return check_piece(piece, files_.at(piece.file).read_into(piece.name, tensor));
}

Status CheckpointReader::check_piece(const CheckpointPiece& piece,
                                     const Result<uint32_t>& sum) const {
  if (!sum.ok() || sum.value() == piece.crc32c) return sum.status();
  return corrupt(folder_ / piece.file, "tensor '" + piece.name + "' is damaged",
                 str_cat("checksum ", piece.crc32c), str_cat(sum.value()));
}

}  // namespace fleet::fluid::io
