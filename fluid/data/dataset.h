// Rows that training reads, by number. Reading a row is a pure function of its number and the
// epoch, so that any worker, thread or restarted process makes the same batch.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "fluid/core/tensor.h"
#include "fluid/executor/executor.h"

namespace fleet::fluid::data {

// What a row is read for.
struct ReadContext {
  int64_t epoch = 0;  // from 0 on
  // Of the loader's seed and the epoch: a row that is changed at random each time (cropped, turned)
  // draws its k-th number as uniform_double(key, k, row).
  RandomKey key = {};
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t rows() const = 0;
  // The rows with these numbers, joined in this order. Several threads call at once.
  virtual Feed read(std::span<const int64_t> rows, const ReadContext& context) const = 0;
};

// Rows in memory. The first dimension of each tensor counts rows; of a tensor with sequences (LoD
// of one level) the sequences are the rows.
class TensorDataset : public Dataset {
 public:
  // Throws UsageError when the tensors do not have the same number of rows.
  explicit TensorDataset(Feed columns);

  int64_t rows() const override { return rows_; }
  Feed read(std::span<const int64_t> rows, const ReadContext& context = {}) const override;

 private:
  Feed columns_;
  int64_t rows_ = 0;
};

}  // namespace fleet::fluid::data
