// Makes data sets by the names that Paddle has for them.
#pragma once

#include <memory>
#include <string>

#include "fluid/data/formats/datasets/dataset_base.h"

namespace fleet::fluid::data {

class DatasetFactory {
 public:
  // "QueueDataset" or "InMemoryDataset"; UsageError for another name.
  std::unique_ptr<DatasetBase> create_dataset(const std::string& kind = "QueueDataset") const;
};

}  // namespace fleet::fluid::data
