// A small net that learns from records in text files, and the files.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "fluid/data/formats/datasets/dataset_factory.h"
#include "fluid/executor/training/dataset_run.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid {

inline constexpr int64_t kRecords = 203;
inline constexpr int64_t kBatch = 20;
inline constexpr uint64_t kBatches = 11;  // the last with 3 records

// Sequences of ids, two numbers and a label that follows from them; with random numbers in training
// and with statistics that training moves.
struct ClickNet {
  Program main;
  Program startup;
  std::vector<data::UseVar> variables;
  std::string loss;
  std::string area;
  std::vector<std::string> states;  // of the area
  std::vector<std::string> counts;  // those of them that are examples of each kind, by prediction

  ClickNet() {
    main.set_random_seed(3);
    startup.set_random_seed(3);
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable label = layers::data("label", {1}, DType::kInt64);
    const Variable x = layers::data("x", {2});
    const Variable ids = layers::data("ids", {1}, DType::kInt64, {.lod_level = 1});
    const Variable rows = layers::embedding(ids, Shape{50, 4}, {.is_sparse = true});
    const Variable hidden =
        layers::fc(layers::concat({layers::sequence_pool(rows, "sum"), x}, 1), 8, {.act = "relu"});
    const Variable normal = layers::batch_norm(hidden);
    const Variable out = layers::fc(layers::dropout(normal, 0.1), 2, {.act = "softmax"});
    const auto auc = layers::auc(out, label);
    const Variable cost = layers::mean(layers::cross_entropy(out, label));
    optimizer::Adam({.learning_rate = 0.02}).minimize(cost);
    variables = use_vars({label, x, ids});
    loss = cost.name();
    area = auc.auc.name();
    for (const Variable& state : auc.states) states.push_back(state.name());
    counts = {states[2], states[3]};
  }
};

class DatasetRuns : public data::TextFiles {
 protected:
  DatasetRuns() {
    const RandomKey key = RandomKey::of(5, "records");
    std::string text[2];
    for (int64_t i = 0; i < kRecords; ++i) {
      const auto draw = [&](uint64_t k) {
        return uniform_double(key, k, static_cast<uint64_t>(i));
      };
      const auto first = static_cast<int64_t>(50 * draw(0));
      const int64_t label = static_cast<double>(first) / 50 + draw(1) > 1 ? 1 : 0;
      std::string ids = str_cat(" ", first);
      const auto more = static_cast<int64_t>(3 * draw(2));
      for (int64_t k = 0; k < more; ++k) ids += str_cat(" ", k);
      text[i % 2] += str_cat("1 ", label, " 2 ", draw(1), " ", draw(3), " ", 1 + more, ids, "\n");
    }
    write("part-0", text[0]);
    write("part-1", text[1]);
  }

  std::unique_ptr<data::DatasetBase> dataset(const std::string& kind = "QueueDataset",
                                             int threads = 1) const {
    auto made = data::DatasetFactory().create_dataset(kind);
    made->set_batch_size(kBatch);
    made->set_thread(threads);
    made->set_filelist({path("part-*")});
    made->set_use_var(net_.variables);
    if (kind == "InMemoryDataset") made->load_into_memory();
    return made;
  }

  // The bytes of everything that training changes.
  std::map<std::string, std::string> values(Executor& exe) const {
    std::map<std::string, std::string> all;
    for (const VarDesc* var : net_.main.global_block().vars()) {
      if (!var->persistable) continue;
      const Tensor& tensor = exe.scope().tensor(var->name);
      all[var->name] = {reinterpret_cast<const char*>(tensor.raw()), tensor.bytes()};
    }
    return all;
  }

  Feed feed_of(std::vector<Tensor> tensors) const {
    Feed feed;
    for (size_t i = 0; i < tensors.size(); ++i) {
      feed.emplace_back(net_.variables[i].name, std::move(tensors[i]));
    }
    return feed;
  }

  int64_t counted(Executor& exe) const {
    int64_t all = 0;
    for (const std::string& name : net_.counts) {
      for (const int64_t count : exe.scope().tensor(name).values<int64_t>()) all += count;
    }
    return all;
  }

  static DatasetRun quiet() {
    DatasetRun run;
    run.logger = Logger(LogLevel::kOff);
    return run;
  }

  const ClickNet net_;
};

}  // namespace fleet::fluid
