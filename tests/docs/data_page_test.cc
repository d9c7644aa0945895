// What docs/data.md shows is compiled and run here: each block of the page is what stands between
// two marks of this file.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "fluid/data/formats/datasets/dataset_factory.h"
#include "fluid/data/formats/parsers/libsvm.h"
#include "fluid/data/formats/record_cache.h"
#include "fluid/data/formats/record_reader.h"
#include "fluid/executor/training/dataset_run.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/docs/page_blocks.h"

namespace {

namespace data = fleet::fluid::data;
using fleet::fluid::DType;
using fleet::fluid::Tensor;

// A folder of a test's own.
class DataPage : public ::testing::Test {
 protected:
  DataPage() {
    std::string name = (std::filesystem::temp_directory_path() / "data_page_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    std::filesystem::current_path(folder_);
  }
  ~DataPage() override {
    std::filesystem::current_path(folder_.parent_path());
    std::filesystem::remove_all(folder_);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(DataPage, TrainsOnADataSet) {
  for (const char* name : {"train-1.txt", "train-2.txt", "test.txt"}) {
    std::ofstream file(name);
    for (int i = 0; i < 320; ++i) file << "2 " << 0.01 * i << " 1 1 " << 0.02 * i << "\n";
  }
  namespace fluid = fleet::fluid;
  const auto x = fluid::layers::data("x", {2});
  const auto y = fluid::layers::data("y", {1});
  const auto loss =
      fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y));
  const fluid::Program test = fluid::default_main_program().clone(true);
  fluid::optimizer::Adam({.learning_rate = 0.1}).minimize(loss);
  fluid::Executor exe;
  exe.run(fluid::default_startup_program());
  ::testing::internal::CaptureStderr();
  // [
  auto dataset = data::DatasetFactory().create_dataset("QueueDataset");
  dataset->set_filelist({"train-*.txt"});
  dataset->set_use_var(fluid::use_vars({x, y}));
  dataset->set_batch_size(32);
  dataset->set_thread(2);
  exe.train_from_dataset(fluid::default_main_program(), *dataset,
                         {.fetch_list = {loss}, .fetch_info = {"loss"}, .print_period = 10});
  dataset->set_filelist({"test.txt"});
  auto tested = exe.infer_from_dataset(test, *dataset, {.fetch_list = {loss}});
  // ]
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("loss="));
  EXPECT_EQ(tested.samples, 320U);
  EXPECT_LT(tested.fetched[0].item<float>(), 10);
}

TEST_F(DataPage, ReadsFiles) {
  std::ofstream("day-1.txt") << "1 5 2 0.5 1\n2 6 7 2 0.25 2\n";
  std::ofstream("day-2.txt") << "1 8 2 0.125 3\n";
  ::testing::internal::CaptureStdout();
  // [
  auto dataset = data::DatasetFactory().create_dataset("InMemoryDataset");
  dataset->set_filelist({"day-*.txt"});
  dataset->set_use_var(
      {{.name = "ids", .lod_level = 1}, {.name = "x", .dtype = DType::kFloat32, .shape = {-1, 2}}});
  dataset->set_batch_size(2);
  dataset->set_thread(2);
  dataset->load_into_memory();
  dataset->local_shuffle(1);
  auto batches = dataset->batches();
  for (auto feed = batches->next(); !feed.empty(); feed = batches->next()) {
    std::cout << feed[0].to_string() << feed[1].to_string();
  }
  // ]
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), ::testing::HasSubstr("0.125"));
  EXPECT_EQ(dataset->get_memory_data_size(), 3);
}

TEST_F(DataPage, CachesRecords) {
  std::ofstream("a.libsvm") << "1 1:5 3:6\n0 2:7\n";
  // [
  auto parser = std::make_shared<data::LibsvmParser>(data::LibsvmOptions{.features = 3});
  data::RecordReader reader({"a.libsvm"}, parser, {.threads = 2, .max_bad_lines = 0});
  data::CacheWriter writer("a.cache", reader.slots());
  while (auto block = reader.next_block()) writer.append(*block);
  writer.finish();
  data::RecordCache cache("a.cache");
  std::vector<int64_t> some = {1, 0};
  std::vector<Tensor> tensors = cache.read(some);  // [2, 1] labels, [2, 3] features
  // ]
  EXPECT_THAT(tensors[1].values<float>(), ::testing::ElementsAre(0, 7, 0, 5, 0, 6));
}

TEST(DataPageText, ShowsWhatIsRunHere) {
  const auto run = fleet::testing::blocks_that_run("tests/docs/data_page_test.cc");
  EXPECT_EQ(fleet::testing::blocks_shown("docs/data.md"), run);
  EXPECT_EQ(run.size(), 3U);
}

}  // namespace
