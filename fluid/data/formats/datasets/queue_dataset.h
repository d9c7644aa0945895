// A data set that is read while training goes on.
#pragma once

#include "fluid/data/formats/datasets/dataset_base.h"

namespace fleet::fluid::data {

// Records come in the order of the files, which are read anew for each batches().
class QueueDataset final : public DatasetBase {
 public:
  QueueDataset() : DatasetBase("QueueDataset") {}
  std::unique_ptr<DatasetBatches> batches() override;
};

}  // namespace fleet::fluid::data
