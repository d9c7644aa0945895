// Growing tables of checkpoints, as fleet-inspect shows and compares them.
#include <gmock/gmock.h>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/lookup/shared_table.h"
#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tools/inspect/checkpoints.h"
#include "tools/inspect/render.h"

namespace fleet::inspect {
namespace {

using fluid::tables::GrowingTable;
using fluid::tables::SharedTable;
using fluid::tables::TableOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Rows = std::vector<std::pair<uint64_t, std::vector<float>>>;  // values and states, by id

constexpr const char* kName = "ctr";

class TablesOfCheckpoints : public ::testing::Test {
 protected:
  // Ids are dealt to `parts` servers in turns.
  std::filesystem::path write(const std::string& name, const Rows& rows, int parts = 2,
                              size_t width = 2) const {
    const auto folder = directory_.path() / name;
    for (int part = 0; part < parts; ++part) {
      TableOptions options{.name = kName, .width = width};
      options.states.push_back({.name = "moment", .width = 1});
      const auto table = std::make_shared<SharedTable>(options);
      for (const auto& [id, floats] : rows) {
        if (id % static_cast<uint64_t>(parts) != static_cast<uint64_t>(part)) continue;
        table->alone([&](GrowingTable& all) { all.put(id, floats); });
      }
      fluid::io::CheckpointTables files;
      files[kName] = std::make_shared<fluid::io::TableSave>(
          table, fluid::io::checkpoint_table_file(folder, kName, part, parts),
          fluid::tables::TableSaveOptions{.part = static_cast<uint32_t>(part),
                                          .parts = static_cast<uint32_t>(parts)});
      fluid::io::write_checkpoint_part(folder, part, parts, {}, system_files(), {}, files);
    }
    fluid::io::write_checkpoint_manifest(folder, fluid::testing::sample_info(), parts);
    return folder;
  }

  const fluid::testing::TemporaryDirectory directory_;
  const Rows rows_ = {{1, {3, -4, 100}}, {2, {0, 12, 100}}, {~uint64_t{0}, {0, 0, 100}}};
};

TEST_F(TablesOfCheckpoints, AreShownWithAllPartsAndTheirValues) {
  const auto folder = write("one", rows_);
  const Checkpoint plain = read_checkpoint(folder, /*values=*/false);
  ASSERT_THAT(plain.tables, SizeIs(1));
  EXPECT_EQ(plain.tables[0].name, kName);
  EXPECT_EQ(plain.tables[0].rows, 3U);
  EXPECT_EQ(plain.tables[0].width, 2U);
  EXPECT_EQ(plain.tables[0].states, std::vector<std::string>{"moment 1"});
  EXPECT_THAT(plain.tables[0].files, SizeIs(2));
  EXPECT_FALSE(plain.tables[0].values);
  const ValueSummary values = *read_checkpoint(folder, /*values=*/true).tables[0].values;
  EXPECT_DOUBLE_EQ(values.norm, 13) << "without states";
  EXPECT_EQ(values.least, -4);
  EXPECT_EQ(values.most, 12);
  EXPECT_EQ(values.nonfinite, 0);
  EXPECT_THAT(draw_text(plain), AllOf(HasSubstr("1 growing table"), HasSubstr("moment")));
  EXPECT_THAT(to_json(plain), HasSubstr("\"rows\": 3"));
}

TEST_F(TablesOfCheckpoints, AreEqualHoweverManyServersWroteThem) {
  const Comparison comparison = compare(write("one", rows_, 1), write("three", rows_, 3));
  EXPECT_TRUE(comparison.none());
  EXPECT_EQ(comparison.equal_tables, 1U);
  EXPECT_THAT(draw_text(comparison), HasSubstr("1 growing table is equal, 0 are not."));
}

TEST_F(TablesOfCheckpoints, AreComparedRowByRow) {
  Rows others = rows_;
  others[0].second[2] = 101;  // a state
  others[1].first = 7;
  const Comparison comparison = compare(write("a", rows_), write("b", others));
  EXPECT_FALSE(comparison.none());
  ASSERT_THAT(comparison.tables, SizeIs(1));
  ASSERT_TRUE(comparison.tables[0].rows);
  EXPECT_EQ(comparison.tables[0].rows->only_a, 1U);
  EXPECT_EQ(comparison.tables[0].rows->only_b, 1U);
  EXPECT_EQ(comparison.tables[0].rows->others, 1U);
  EXPECT_THAT(to_json(comparison),
              AllOf(HasSubstr("\"equal\": false"), HasSubstr("\"other_rows\": 1")));
  EXPECT_THAT(draw_text(comparison), HasSubstr("0 growing tables are equal, 1 is not."));
}

TEST_F(TablesOfCheckpoints, OfAnotherWidthOrMissingDiffer) {
  const auto folder = write("a", rows_);
  const Comparison wider = compare(folder, write("wide", {{1, {1, 2, 3, 4}}}, 1, 3));
  ASSERT_THAT(wider.tables, SizeIs(1));
  EXPECT_FALSE(wider.tables[0].rows);
  const auto without = directory_.path() / "without";
  fluid::io::write_checkpoint_part(without, 0, 1, fluid::testing::sample_tensors());
  fluid::io::write_checkpoint_manifest(without, fluid::testing::sample_info(), 1);
  const Comparison missing = compare(folder, without);
  ASSERT_THAT(missing.tables, SizeIs(1));
  EXPECT_FALSE(missing.tables[0].b);
  EXPECT_THAT(read_checkpoint(without, false).tables, IsEmpty());
  EXPECT_THAT(draw_text(compare(without, without)), Not(HasSubstr("growing")));
}

TEST_F(TablesOfCheckpoints, ThatAreDamagedAreNamed) {
  const auto folder = write("a", rows_);
  const auto file = fluid::io::checkpoint_table_file(folder, kName, 0, 2);
  fluid::testing::flip_bit(file, std::filesystem::file_size(file) / 2);
  try {
    read_checkpoint(folder, /*values=*/true);
    FAIL() << "nothing was thrown";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr(file.filename().string()));
  }
}

}  // namespace
}  // namespace fleet::inspect
