#include "fluid/data/formats/datasets/dataset_base.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/data/formats/file_list.h"
#include "fluid/data/formats/parsers/multi_slot.h"

namespace fleet::fluid::data {
namespace {

[[noreturn]] void refuse_value(std::string what, std::string where, std::string expected,
                               std::string got, std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = std::move(where),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

SlotType slot_type(const UseVar& variable) {
  if (variable.dtype == DType::kInt64) return SlotType::kId;
  if (variable.dtype == DType::kFloat32) return SlotType::kFloat;
  refuse_value("a data set cannot feed variables of this type",
               str_cat("variable '", variable.name, "'"), "int64 or float32",
               std::string(dtype_name(variable.dtype)), "feed int64 or float32, and cast it");
}

SlotSpec slot_of(const UseVar& variable) {
  const std::string where = str_cat("variable '", variable.name, "'");
  const SlotType type = slot_type(variable);
  if (variable.lod_level == 1) return SlotSpec::sparse(variable.name, type);
  if (variable.lod_level != 0) {
    refuse_value("a data set has sequences of one level", where, "lod_level 0 or 1",
                 std::to_string(variable.lod_level), "declare it with lod_level 1");
  }
  std::vector<int64_t> dims;
  for (size_t i = 1; i < variable.shape.size(); ++i) {
    if (variable.shape[i] <= 0) {
      refuse_value("a dense variable has a dimension that is not known", where,
                   "only the batch's dimension may be unknown",
                   str_cat("[", join(variable.shape, ", "), "]"),
                   "declare the dimension, or use lod_level 1");
    }
    dims.push_back(variable.shape[i]);
  }
  if (dims.empty()) dims = {1};
  return SlotSpec::dense(variable.name, type, std::move(dims));
}

}  // namespace

void DatasetBase::set_batch_size(int64_t records) {
  if (records < 1) {
    refuse_value("a batch has no records", "set_batch_size", "1 or more", std::to_string(records),
                 "set a positive size");
  }
  batch_size_ = records;
}

void DatasetBase::set_thread(int threads) {
  if (threads < 1 || threads > 1024) {
    refuse_value("so many threads cannot read", "set_thread", "1 to 1024", std::to_string(threads),
                 "set the number of cores, or fewer");
  }
  options_.threads = threads;
}

void DatasetBase::set_filelist(std::vector<std::string> files) {
  files_ = std::move(files);
  files_given_ = true;
}

void DatasetBase::set_use_var(std::vector<UseVar> variables) {
  for (const UseVar& variable : variables) slot_of(variable);
  variables_ = std::move(variables);
}

void DatasetBase::set_pipe_command(std::string command) {
  options_.pipe_command = std::move(command);
}

void DatasetBase::set_hdfs_config(const std::string& fs_name, const std::string& /*fs_ugi*/) {
  throw_error(ErrorCode::kNotSupported,
              {.what = "data sets read files of this machine, not of HDFS",
               .where = "set_hdfs_config",
               .got = fs_name,
               .fix = "mount the file system, or list small files that hold the remote names and "
                      "set a pipe command such as `xargs hadoop fs -cat`"});
}

void DatasetBase::set_parser(std::shared_ptr<const RecordParser> parser) {
  parser_ = std::move(parser);
}

void DatasetBase::set_max_bad_lines(uint64_t lines) {
  options_.max_bad_lines = lines;
}

void DatasetBase::set_side_by_side(int files) {
  if (files < 1 || files > 1024) {
    refuse_value("so many files cannot be read side by side", "set_side_by_side", "1 to 1024",
                 std::to_string(files), "set about the number of threads");
  }
  options_.side_by_side = files;
}

std::unique_ptr<DatasetBatches> DatasetBase::batches(int64_t parts) {
  if (parts < 1 || batch_size_ % parts != 0) {
    refuse_value("a batch cannot be cut into so many equal parts", "batches",
                 parts < 1 ? "1 part or more" : str_cat("a batch size that ", parts, " divides"),
                 parts < 1 ? std::to_string(parts) : std::to_string(batch_size_),
                 "change set_batch_size, or the logical shards of the step");
  }
  return make_batches(parts);
}

void DatasetBase::refuse(const char* call) const {
  throw_error(ErrorCode::kNotSupported, {.what = str_cat(kind_, " has no ", call),
                                         .where = call,
                                         .expected = "a data set in memory",
                                         .got = kind_,
                                         .fix = "create_dataset(\"InMemoryDataset\")"});
}

void DatasetBase::load_into_memory() {
  refuse("load_into_memory");
}
void DatasetBase::release_memory() {
  refuse("release_memory");
}
void DatasetBase::local_shuffle(uint64_t /*seed*/) {
  refuse("local_shuffle");
}
void DatasetBase::global_shuffle(uint64_t /*seed*/, int /*worker*/, int /*workers*/) {
  refuse("global_shuffle");
}
void DatasetBase::global_shuffle(uint64_t /*seed*/, int /*worker*/, int /*workers*/,
                                 const RecordExchange& /*exchange*/) {
  refuse("global_shuffle");
}
int64_t DatasetBase::get_memory_data_size() const {
  refuse("get_memory_data_size");
}
int64_t DatasetBase::get_shuffle_data_size() const {
  refuse("get_shuffle_data_size");
}

std::vector<std::string> DatasetBase::filelist() const {
  return expand_files(files_);
}

uint64_t DatasetBase::filelist_hash() const {
  uint64_t hash = 0;
  for (const std::string& file : filelist()) hash = xxh64(file, hash);
  return hash;
}

std::unique_ptr<RecordReader> DatasetBase::reader(std::vector<std::string> files) const {
  if (!files_given_ || variables_.empty()) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "a data set has nothing to read",
                 .where = kind_,
                 .expected = "files and variables",
                 .got = !files_given_ ? "no files" : "no variables",
                 .fix = !files_given_ ? "call set_filelist first" : "call set_use_var first"});
  }
  return std::make_unique<RecordReader>(std::move(files), parser(), options_);
}

std::shared_ptr<const RecordParser> DatasetBase::parser() const {
  if (parser_) return parser_;
  std::vector<MultiSlotField> fields;
  for (const UseVar& variable : variables_) fields.push_back({slot_of(variable)});
  return std::make_shared<MultiSlotParser>(std::move(fields));
}

std::vector<size_t> DatasetBase::slots_of_variables(const RecordParser& parser) const {
  std::vector<std::string> names;
  for (const SlotSpec& slot : *parser.slots()) names.push_back(slot.name);
  std::vector<size_t> slots;
  for (const UseVar& variable : variables_) {
    const auto found = std::find(names.begin(), names.end(), variable.name);
    if (found == names.end()) {
      throw_error(
          ErrorCode::kUnknownName,
          {.what = str_cat("the records have no slot '", variable.name, "'"),
           .where = "set_use_var",
           .expected = str_cat("one of ", join(names, ", ")),
           .got = variable.name,
           .fix = str_cat("name the variable as the slot", did_you_mean(variable.name, names))});
    }
    slots.push_back(static_cast<size_t>(found - names.begin()));
    const SlotType type = (*parser.slots())[slots.back()].type;
    if (type != slot_type(variable)) {
      throw_error(ErrorCode::kDTypeMismatch,
                  {.what = "a slot's values are of another type than the variable",
                   .where = str_cat("variable '", variable.name, "'"),
                   .expected = type == SlotType::kId ? "int64" : "float32",
                   .got = std::string(dtype_name(variable.dtype)),
                   .fix = "declare the variable with the slot's type"});
    }
  }
  return slots;
}

std::vector<Tensor> DatasetBase::chosen(std::vector<Tensor> tensors,
                                        const std::vector<size_t>& slots) {
  std::vector<Tensor> of_variables;
  if (tensors.empty()) return of_variables;
  for (const size_t slot : slots) of_variables.push_back(tensors[slot]);
  return of_variables;
}

}  // namespace fleet::fluid::data
