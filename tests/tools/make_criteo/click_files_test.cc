#include "tools/make_criteo/click_files.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "fluid/data/formats/parsers/criteo.h"
#include "fluid/data/formats/record_reader.h"
#include "tests/fluid/data/formats/text_files.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"
#include "tools/make_criteo/area_under_curve.h"

namespace fleet::tools {
namespace {

using fluid::data::RecordBatch;
using fluid::data::RecordReader;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ClickFilesTest : public fluid::data::TextFiles {
 protected:
  ClickFiles files(const std::string& folder) const {
    return {
        .folder = path(folder), .records = 1001, .test_records = 300, .files = 3, .test_files = 2};
  }
  const ClickOptions options_{.seed = 3, .ids = 300};
  const ClickModel model_{options_};
};

// What the files hold, read as training reads it, is what the model drew.
TEST_F(ClickFilesTest, HoldTheRecordsOfTheModel) {
  const ClickReport report = write_click_files(model_, files("a"));
  EXPECT_THAT(report.train.files, ElementsAre("part-000", "part-001", "part-002"));
  EXPECT_THAT(report.test.files, ElementsAre("test-000", "test-001"));
  EXPECT_EQ(report.train.records, 1001U);
  const auto parser = std::make_shared<fluid::data::CriteoParser>(
      fluid::data::CriteoOptions{.dense = fluid::data::DenseTransform::kNone,
                                 .dense_missing = -7,
                                 .ids = fluid::data::CategoryIds::kValue});
  std::vector<std::string> names;
  for (const std::string& name : report.train.files) names.push_back(path("a/" + name));
  RecordReader reader(names, parser, {.max_bad_lines = 0});
  RecordBatch batch(reader.slots());
  ASSERT_EQ(reader.read(batch, 10000), 1001);
  std::vector<double> scores[2];
  for (int64_t i = 0; i < 1001; ++i) {
    const ClickRecord record = model_.record(static_cast<uint64_t>(i));
    EXPECT_EQ(batch.ids(0, i)[0], record.click ? 1U : 0U);
    for (size_t k = 0; k < kClickNumbers; ++k) {
      const auto& number = record.numbers[k];
      EXPECT_EQ(batch.floats(1, i)[k], number ? static_cast<float>(*number) : -7.0F);
    }
    for (size_t k = 0; k < kClickCategories; ++k) {
      EXPECT_EQ(batch.ids(2 + k, i)[0],
                record.categories[k].value_or(0) + (record.categories[k] ? 0 : uint64_t{1} << 32));
    }
    scores[record.click ? 0 : 1].push_back(record.probability);
  }
  EXPECT_EQ(report.train.clicks, scores[0].size());
  EXPECT_EQ(report.train.best_auc, area_under_curve(scores[0], scores[1]));
  EXPECT_GT(report.train.best_auc, 0.7);
  EXPECT_LT(report.train.best_auc, 0.98);
}

TEST_F(ClickFilesTest, AreTheSameForAnyNumberOfThreadsAndPacked) {
  const ClickReport report = write_click_files(model_, files("a"));
  ClickFiles others = files("b");
  others.threads = 3;
  others.gzip = true;
  const ClickReport packed = write_click_files(model_, others);
  EXPECT_EQ(packed.train.best_auc, report.train.best_auc);
  EXPECT_EQ(packed.test.best_auc, report.test.best_auc);
  for (const char* name : {"part-000", "part-002", "test-001"}) {
    const std::string plain = read(path(str_cat("a/", name)));
    const auto source = fluid::data::open_source(path(str_cat("b/", name, ".gz")));
    std::string unpacked(plain.size() + 1, '\0');
    unpacked.resize(source->read(unpacked));
    EXPECT_EQ(unpacked, plain) << name;
    EXPECT_NE(read(path(str_cat("b/", name, ".gz"))), plain);
  }
  // One file has the same records.
  ClickFiles one = files("c");
  one.files = 1;
  write_click_files(model_, one);
  EXPECT_EQ(read(path("c/part-000")),
            read(path("a/part-000")) + read(path("a/part-001")) + read(path("a/part-002")));
}

TEST_F(ClickFilesTest, DoNotLieBesideOthers) {
  write_click_files(model_, files("a"));
  write_click_files(model_, files("a"));  // the same names
  ClickFiles fewer = files("a");
  fewer.files = 2;
  try {
    write_click_files(model_, fewer);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("part-002"));
  }
  ClickFiles packed = files("a");
  packed.gzip = true;
  EXPECT_THROW(write_click_files(model_, packed), Error);
}

TEST_F(ClickFilesTest, AreMadeByTheProgram) {
  const std::string command = testing::binary_path("bin/fleet-make-criteo ");
  const auto made = testing::run_command(command +
                                         "--records 1001 --test_records 300 --files 3 "
                                         "--test_files 2 --seed 3 --ids 300 " +
                                         path("made"));
  EXPECT_EQ(made.code, 0) << made.output;
  const ClickReport report = write_click_files(model_, files("a"));
  EXPECT_EQ(read(path("made/part-001")), read(path("a/part-001")));
  const auto json = nlohmann::json::parse(read(path("made/report.json")));
  EXPECT_EQ(json["train"]["best_auc"], report.train.best_auc);
  EXPECT_EQ(json["test"]["records"], 300);
  EXPECT_EQ(json["options"]["ids"], 300);
  EXPECT_THAT(made.output, HasSubstr("best AUC 0."));

  EXPECT_EQ(testing::run_command(command).code, 2);
  EXPECT_EQ(testing::run_command(command + "--files 0 " + path("x")).code, 2);
  const auto nowhere = testing::run_command(command + write("file", "") + "/folder");
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.output, HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace fleet::tools
