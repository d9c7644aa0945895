// Data sets of files, with Paddle's names (fluid.DatasetFactory): what files there are, what a
// record in them is, and the batches that training takes from them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fluid/core/dtype.h"
#include "fluid/data/formats/datasets/record_exchange.h"
#include "fluid/data/formats/parsers/parser.h"
#include "fluid/data/formats/record_reader.h"

namespace fleet::fluid::data {

// A variable that batches feed, as layers::data declares it.
struct UseVar {
  std::string name;
  DType dtype = DType::kInt64;        // int64 or float32
  std::vector<int64_t> shape = {-1};  // with the batch's dimension, which is left out of account
  int lod_level = 0;                  // 0: each record has the values of the shape; 1: any number
};

// Batches, one after the other. Any thread may take the next; which batches there are, and in which
// order, does not depend on the threads.
class DatasetBatches {
 public:
  virtual ~DatasetBatches() = default;
  // The tensors of the use_vars, in their order; fewer records in the last batch; empty at the end.
  // Throws what RecordReader throws.
  virtual std::vector<Tensor> next() = 0;
  // For the end: a next() that waits for its files ends soon, with Error (kCancelled).
  virtual void cancel() {}
  // Where the next batch begins, as text, and going on there. UsageError for another data set's.
  virtual std::string position() = 0;
  virtual void seek(const std::string& position) = 0;
  // Records that are still to come, where that is known.
  virtual std::optional<uint64_t> records_left() { return std::nullopt; }
  // Lines that could not be read: how many so far, of these batches, and the first of them.
  virtual uint64_t bad_lines() = 0;
  virtual std::vector<BadLine> first_bad_lines() = 0;
};

// Used by one thread; set_... before the records are read. UsageError for values that cannot be.
class DatasetBase {
 public:
  virtual ~DatasetBase() = default;

  void set_batch_size(int64_t records);  // 1 unless set
  void set_thread(int threads);          // that read and parse; 1 unless set
  // Names and globs.
  void set_filelist(std::vector<std::string> files);
  // MultiSlot text has these slots, in this order; another parser's slots are found by these names.
  void set_use_var(std::vector<UseVar> variables);
  void set_pipe_command(std::string command);  // "cat" unless set; as SourceOptions::pipe_command
  // Never possible: throws Error (kNotSupported) that says what is.
  [[noreturn]] void set_hdfs_config(const std::string& fs_name, const std::string& fs_ugi);

  // Beyond Paddle: another format than MultiSlot, lines that may be bad, files read side by side.
  void set_parser(std::shared_ptr<const RecordParser> parser);
  void set_max_bad_lines(uint64_t lines);
  void set_side_by_side(int files);

  // From the first record on. The data set must live on, and not be changed meanwhile. `parts`:
  // every batch has a multiple of so many records, for steps that are cut into as many parts; what
  // the last batch has beyond that is left out. UsageError where the batch size is no multiple.
  std::unique_ptr<DatasetBatches> batches(int64_t parts = 1);

  // Of data sets in memory; others throw Error (kNotSupported).
  virtual void load_into_memory();
  virtual void release_memory();
  virtual void local_shuffle(uint64_t seed = 0);
  virtual void global_shuffle(uint64_t seed, int worker, int workers);
  virtual void global_shuffle(uint64_t seed, int worker, int workers,
                              const RecordExchange& exchange);
  virtual int64_t get_memory_data_size() const;
  virtual int64_t get_shuffle_data_size() const;

  int64_t batch_size() const { return batch_size_; }
  int thread() const { return options_.threads; }
  const std::vector<UseVar>& use_var() const { return variables_; }
  // The files, globs expanded.
  std::vector<std::string> filelist() const;
  // Of the names of filelist(): workers that must have the same one can compare it.
  uint64_t filelist_hash() const;

 protected:
  explicit DatasetBase(std::string kind) : kind_(std::move(kind)) {}

  virtual std::unique_ptr<DatasetBatches> make_batches(int64_t parts) = 0;
  // UsageError when files or variables were not set.
  std::unique_ptr<RecordReader> reader() const { return reader(filelist()); }
  // The same of some of the files.
  std::unique_ptr<RecordReader> reader(std::vector<std::string> files) const;
  int side_by_side() const { return options_.side_by_side; }
  // Where the parser has the use_vars.
  std::vector<size_t> slots_of_variables(const RecordParser& parser) const;
  std::shared_ptr<const RecordParser> parser() const;
  // The tensors of the variables alone, in their order.
  static std::vector<Tensor> chosen(std::vector<Tensor> tensors, const std::vector<size_t>& slots);

 private:
  [[noreturn]] void refuse(const char* call) const;

  std::string kind_;
  int64_t batch_size_ = 1;
  std::vector<std::string> files_;
  bool files_given_ = false;  // there may be none for this worker
  std::vector<UseVar> variables_;
  std::shared_ptr<const RecordParser> parser_;
  RecordReaderOptions options_;
};

}  // namespace fleet::fluid::data
