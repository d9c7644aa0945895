#include "strategies/parameter_server/server/checkpoint/server_part.h"

#include <gmock/gmock.h>

#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/fluid/io/temporary_directory.h"

namespace fleet::strategies {
namespace {

using fluid::Tensor;
using fluid::io::CheckpointReader;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Part : public ::testing::Test {
 protected:
  ParameterEntry entry(const std::string& name, int64_t rows, int64_t first, int64_t stride) const {
    ParameterEntry entry;
    entry.name = name;
    entry.shape = {rows, 2};
    entry.origin = "w";
    entry.origin_shape = {5, 2};
    entry.offset = 2 * first;
    entry.row_stride = stride;
    return entry;
  }
  Tensor rows(const std::vector<float>& values) const {
    return Tensor::from(values, {static_cast<int64_t>(values.size()) / 2, 2});
  }
  // Parts of two servers, the first one's written by it.
  void write(const ServerPart& first, const ServerPart& second) {
    fluid::io::begin_checkpoint(folder_);
    PartOrder order{.folder = folder_.string(), .part = 0, .parts = 2, .variables = {}};
    EXPECT_EQ(writer_.refusal(order), "");
    writer_.start(order, first);
    fluid::io::write_checkpoint_part(folder_, 1, 2, second.tensors, system_files(), second.rows);
    while (!fluid::io::missing_checkpoint_parts(folder_, 2).empty()) {
    }
    fluid::io::write_checkpoint_manifest(folder_, {}, 2);
  }

  const fluid::testing::TemporaryDirectory directory_;
  const std::filesystem::path folder_ = directory_.path() / "checkpoint";
  ServerPartWriter writer_{SaveFolders({directory_.path().string()}), make_background_thread(),
                           system_files(), Logger()};
};

TEST_F(Part, HoldsRowsOfVariables) {
  ServerPart first;
  ServerPart second;
  add_to_part(entry("w.block0", 2, 0, 1), rows({0, 1, 2, 3}), first);
  add_to_part(entry("w.block1", 3, 2, 1), rows({4, 5, 6, 7, 8, 9}), second);
  write(first, second);
  const Tensor whole = CheckpointReader::open(folder_).value().read("w").value();
  EXPECT_THAT(whole.values<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

// The second server's slice has a row behind the variable's last.
TEST_F(Part, HoldsNoRowsBehindTheVariable) {
  ServerPart first;
  ServerPart second;
  add_to_part(entry("w.block0", 3, 0, 2), rows({0, 1, 4, 5, 8, 9}), first);
  add_to_part(entry("w.block1", 3, 1, 2), rows({2, 3, 6, 7, -1, -1}), second);
  write(first, second);
  const Tensor whole = CheckpointReader::open(folder_).value().read("w").value();
  EXPECT_THAT(whole.values<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(Part, HoldsWholeVariablesByTheirOwnName) {
  ServerPart first;
  const Tensor value = rows({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  add_to_part(entry("w.block0", 5, 0, 1), value, first);
  write(first, {});
  EXPECT_EQ(CheckpointReader::open(folder_).value().tensors().at("w").pieces.front().name, "w");
}

class PartSourceTest : public Part {
 protected:
  PartSourceTest() {
    ServerPart first;
    ServerPart second;
    add_to_part(entry("w.block0", 3, 0, 2), rows({0, 1, 4, 5, 8, 9}), first);
    add_to_part(entry("w.block1", 3, 1, 2), rows({2, 3, 6, 7, -1, -1}), second);
    second.tensors.emplace("beta", Tensor::scalar(0.5F));
    write(first, second);
    source_ = {.folder = folder_.string(),
               .checksum = CheckpointReader::open(folder_).value().checksum()};
  }
  CheckpointReader open() const {
    return open_source(source_, SaveFolders({directory_.path().string()}), system_files());
  }
  // Those that are read; others have none.
  std::map<uint32_t, Tensor> read(const std::vector<ParameterEntry>& entries) const {
    std::map<uint32_t, Tensor> values;
    read_values(open(), entries, [&](uint32_t i) -> Tensor& {
      return values[i] = Tensor(entries[i].dtype, fluid::Shape(entries[i].shape));
    });
    return values;
  }
  // What is said of opening and checking it; empty: nothing is wrong.
  std::string refusal(const std::vector<ParameterEntry>& entries) const {
    try {
      check_values(open(), entries);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  }

  PartSource source_;
};

// As it was cut when it was saved, or otherwise.
TEST_F(PartSourceTest, HasRowsAndWholeVariables) {
  ParameterEntry beta;
  beta.name = "beta.copy";
  beta.origin = "beta";
  beta.shape = beta.origin_shape = {1};
  ParameterEntry other = beta;
  other.name = other.origin = "steps";
  const std::vector<ParameterEntry> entries = {entry("w.block0", 3, 0, 2),
                                               entry("w.block1", 3, 1, 2),
                                               entry("w", 5, 0, 1),
                                               entry("w.block1", 2, 3, 1),
                                               beta,
                                               other};
  EXPECT_EQ(refusal(entries), "");
  const auto values = read(entries);
  ASSERT_EQ(values.size(), 5U);
  EXPECT_THAT(values.at(0).values<float>(), ElementsAre(0, 1, 4, 5, 8, 9));
  EXPECT_THAT(values.at(1).values<float>(), ElementsAre(2, 3, 6, 7, 0, 0));
  EXPECT_THAT(values.at(2).values<float>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(values.at(3).values<float>(), ElementsAre(6, 7, 8, 9));
  EXPECT_THAT(values.at(4).values<float>(), ElementsAre(0.5F));
}

TEST_F(PartSourceTest, IsTheWorkersCheckpoint) {
  source_.checksum += 1;
  EXPECT_THAT(refusal({}), HasSubstr("another checkpoint than the workers"));
  source_.folder = (directory_.path() / "none").string();
  EXPECT_THAT(refusal({}), HasSubstr("none"));
}

TEST_F(PartSourceTest, HasVariablesOfTheServersShapeAndType) {
  ParameterEntry wider = entry("w.block0", 3, 0, 2);
  wider.origin_shape = {6, 2};
  EXPECT_THAT(refusal({wider}), HasSubstr("'w'"));
  ParameterEntry whole = entry("w", 5, 0, 1);
  whole.dtype = fluid::DType::kInt32;
  EXPECT_THAT(refusal({whole}), HasSubstr("another type or shape"));
}

TEST_F(PartSourceTest, IsNotDamagedWhereTheServerReadsIt) {
  const std::filesystem::path file = folder_ / "part-1-of-2.safetensors";
  fluid::testing::flip_bit(file, std::filesystem::file_size(file) - 1);
  EXPECT_EQ(refusal({entry("w.block0", 3, 0, 2)}), "");
  EXPECT_THAT(refusal({entry("w.block1", 3, 1, 2)}), HasSubstr("is damaged"));
}

TEST_F(PartSourceTest, IsInsideTheServersFolders) {
  const fluid::testing::TemporaryDirectory elsewhere;
  std::filesystem::copy(folder_, elsewhere.path() / "checkpoint");
  source_.folder = (elsewhere.path() / "checkpoint").string();
  EXPECT_THAT(refusal({}), HasSubstr("FLEET_SERVER_FOLDERS"));
}

TEST_F(Part, IsWrittenWhereACheckpointWasBegunOnly) {
  PartOrder order{.folder = folder_.string(), .part = 0, .parts = 1, .variables = {}};
  EXPECT_THAT(writer_.refusal(order), HasSubstr("sees no checkpoint that was begun"));
  fluid::io::begin_checkpoint(folder_);
  EXPECT_EQ(writer_.refusal(order), "");
  for (const int32_t part : {-1, 1}) {
    PartOrder wrong = order;
    wrong.part = part;
    EXPECT_THAT(writer_.refusal(wrong), HasSubstr("there is no part"));
  }
}

// Whatever a frame says, links and ".." followed.
TEST_F(Part, IsWrittenInsideTheServersFoldersOnly) {
  const fluid::testing::TemporaryDirectory elsewhere;
  const std::filesystem::path outside = elsewhere.path() / "checkpoint";
  fluid::io::begin_checkpoint(outside);
  std::filesystem::create_directory_symlink(outside, directory_.path() / "link");
  for (const std::filesystem::path& folder :
       {outside, directory_.path() / "link",
        directory_.path() / ".." / elsewhere.path().filename() / "checkpoint"}) {
    PartOrder order{.folder = folder.string(), .part = 0, .parts = 1, .variables = {}};
    EXPECT_THAT(writer_.refusal(order), HasSubstr("FLEET_SERVER_FOLDERS")) << folder;
  }
}

TEST_F(Part, SaysInTheFolderWhyItIsNotThere) {
  fluid::io::begin_checkpoint(folder_);
  PartOrder order{.folder = folder_.string(), .part = 0, .parts = 1, .variables = {}};
  std::filesystem::create_directories(folder_ / "part-0-of-1.safetensors" / "in the way");
  writer_.start(order, {});
  std::string said;
  while (said.empty()) {
    try {
      if (fluid::io::missing_checkpoint_parts(folder_, 1).empty()) said = "it is there";
    } catch (const ResourceError& error) {
      said = error.what();
    }
  }
  EXPECT_THAT(said, HasSubstr("part 0"));
}

}  // namespace
}  // namespace fleet::strategies
