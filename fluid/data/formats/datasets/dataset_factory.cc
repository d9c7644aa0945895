#include "fluid/data/formats/datasets/dataset_factory.h"

#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/formats/datasets/in_memory_dataset.h"
#include "fluid/data/formats/datasets/queue_dataset.h"

namespace fleet::fluid::data {

std::unique_ptr<DatasetBase> DatasetFactory::create_dataset(const std::string& kind) const {
  if (kind == "QueueDataset") return std::make_unique<QueueDataset>();
  if (kind == "InMemoryDataset") return std::make_unique<InMemoryDataset>();
  const std::vector<std::string> known = {"QueueDataset", "InMemoryDataset"};
  throw_error(ErrorCode::kUnknownName,
              {.what = str_cat("there is no data set of the kind '", kind, "'"),
               .where = "DatasetFactory::create_dataset",
               .expected = join(known, " or "),
               .got = kind,
               .fix = str_cat("use one of them", did_you_mean(kind, known))});
}

}  // namespace fleet::fluid::data
