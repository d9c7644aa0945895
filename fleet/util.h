// What training loops of a job need beside the facade, with the names of Paddle's fleet.util and
// FleetUtil. Without a Fleet they are of the default one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fleet/fleet.h"
#include "fluid/core/scope.h"
#include "fluid/data/formats/datasets/dataset_base.h"

namespace fleet::util {

// This worker's part of a list of files: contiguous, the first workers get one more where it does
// not divide.
std::vector<std::string> get_file_shard(std::span<const std::string> files,
                                        const Fleet& fleet = default_fleet());

// Loads the data set in memory, and spreads its records at random over the workers: each reads its
// part of the whole list of files, and they give each other records through the folder, which all
// see (InMemoryDataset::global_shuffle). Every worker calls it.
void global_shuffle(fluid::data::DatasetBase& dataset, uint64_t seed, const std::string& folder,
                    Fleet& fleet = default_fleet());

// The area under the ROC curve of the examples of all workers, from the two states of layers::auc
// over all batches (layers::Auc::states, the third and the fourth). Exact: the counts of all
// workers are added up. Every worker calls it. UsageError for variables that are no such states.
double get_global_auc(const fluid::Scope& scope, const std::string& stat_pos,
                      const std::string& stat_neg, Fleet& fleet = default_fleet());

// The variable's numbers become 0: a metric begins anew.
void set_zero(const std::string& var_name, const fluid::Scope& scope);

}  // namespace fleet::util
