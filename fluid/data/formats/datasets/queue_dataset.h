// A data set that is read while training goes on.
#pragma once

#include "fluid/data/formats/datasets/dataset_base.h"

namespace fleet::fluid::data {

// Records come in the order of the files, which are read anew for each batches().
class QueueDataset final : public DatasetBase {
 public:
  QueueDataset() : DatasetBase("QueueDataset") {}

 private:
  std::unique_ptr<DatasetBatches> make_batches(int64_t parts) override;
};

}  // namespace fleet::fluid::data
