#include "fluid/io/checkpoint_store.h"

#include <gmock/gmock.h>
#include <limits>

#include "base/hash.h"
#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tests/testing/virtual_time/sim_disk.h"

namespace fleet::fluid::io {
namespace {

using testing::commit_checkpoint;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::sample_info;
using testing::TemporaryDirectory;
using testing::text_of;
using testing::write_text;

namespace fs = std::filesystem;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    for (const StoredCheckpoint& stored : store_.list()) {
      EXPECT_EQ(stored.folder, store_.folder_of(stored.step));
      found.push_back(stored.step);
    }
    return found;
  }
  void commit(int64_t step, const CheckpointRetention& retention = {.keep = 0},
              float value = 1) const {
    commit_checkpoint(store_, {{"w", Tensor::scalar(value)}}, sample_info(step), retention);
  }
  float value_at(int64_t step) const {
    const auto reader = CheckpointReader::open(store_.folder_of(step));
    return reader.value().read("w").value().item<float>();
  }

  const TemporaryDirectory directory_;
  const CheckpointStore store_{directory_.path() / "checkpoints"};
  const float nan_ = std::numeric_limits<float>::quiet_NaN();
};

TEST_F(CheckpointStoreTest, ListsTheNewestFirst) {
  EXPECT_THAT(steps(), IsEmpty());
  for (const int64_t step : {20, 3, 1'000'000'000, 100}) commit(step);
  EXPECT_THAT(steps(), ElementsAre(1'000'000'000, 100, 20, 3));
  EXPECT_EQ(text_of(store_.root() / "latest"), "step-000000100\n");
  EXPECT_THAT(store_.list_unfinished(), IsEmpty());
}

TEST_F(CheckpointStoreTest, CommitsInPlaceOfTheSameStep) {
  commit(7, {.keep = 1}, 1);
  write_text(store_.folder_of(7) / "other", "");
  commit(7, {.keep = 1}, 2);
  EXPECT_THAT(steps(), ElementsAre(7));
  EXPECT_EQ(value_at(7), 2);
  EXPECT_FALSE(fs::exists(store_.folder_of(7) / "other"));
  EXPECT_THAT(store_.list_unfinished(), IsEmpty());
}

TEST_F(CheckpointStoreTest, KeepsThoseBeforeWhenACommitFails) {
  commit(7);
  const fs::path folder = store_.unfinished(8, "job");
  write_checkpoint_part(folder, 0, 2, {});
  EXPECT_THROW(static_cast<void>(store_.commit(folder, sample_info(8), 2, {.keep = 1})),
               ResourceError);
  EXPECT_THAT(steps(), ElementsAre(7));
  EXPECT_EQ(value_at(7), 1);
}

// What is not synced stays in part, or not at all.
TEST(CheckpointStore, WhatWasCommittedSurvivesALossOfPower) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (const std::vector<int64_t>& steps :
         std::vector<std::vector<int64_t>>{{1}, {1, 2}, {1, 2, 2}, {1, 2, 3, 4}}) {
      uint64_t state = mix64(seed);
      fleet::testing::SimDisk disk([&state](uint64_t below) {
        state = mix64(state);
        return state % below;
      });
      // By a process that ended then.
      ASSERT_FALSE(disk.create_folder("/jobs"));
      const CheckpointStore store("/jobs/one/checkpoints", disk);
      for (const int64_t step : steps) {
        commit_checkpoint(store, {{"w", Tensor::scalar(1.0F)}, {"v", Tensor::scalar(2.0F)}},
                          sample_info(step), {.keep = 2});
      }
      disk.lose_power();
      const auto stored = store.list();
      ASSERT_FALSE(stored.empty()) << "seed " << seed;
      EXPECT_EQ(stored.front().step, steps.back());
      EXPECT_THAT(CheckpointReader::find_damage(stored.front().folder, disk), IsEmpty());
    }
  }
}

// On which taking a folder away ends behind its first file.
class BreakingDisk final : public fleet::testing::SimDisk {
 public:
  using SimDisk::SimDisk;
  std::error_code remove_all(const Path& folder) override {
    for (const Path& file : names_in(folder)) {
      if (file.extension() == ".safetensors") return remove(file);
    }
    return {};
  }
};

TEST(CheckpointStore, WhatIsTakenAwayNeverLooksWholeAfterALossOfPower) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    uint64_t state = mix64(seed);
    BreakingDisk disk([&state](uint64_t below) {
      state = mix64(state);
      return state % below;
    });
    const CheckpointStore store("/checkpoints", disk);
    for (const int64_t step : {1, 2, 2, 3}) {
      commit_checkpoint(store, {{"w", Tensor::scalar(1.0F)}}, sample_info(step), {.keep = 2});
    }
    disk.lose_power();
    for (const StoredCheckpoint& stored : store.list()) {
      EXPECT_THAT(CheckpointReader::find_damage(stored.folder, disk), IsEmpty()) << "seed " << seed;
    }
  }
}

TEST_F(CheckpointStoreTest, KeepsTheNewest) {
  for (int64_t step = 1; step <= 6; ++step) commit(step, {.keep = 2});
  EXPECT_THAT(steps(), ElementsAre(6, 5));
  for (int64_t step = 7; step <= 10; ++step) commit(step, {.keep = 0});
  EXPECT_THAT(steps(), ElementsAre(10, 9, 8, 7, 6, 5));
}

TEST_F(CheckpointStoreTest, KeepsMultiples) {
  for (int64_t step = 1; step <= 10; ++step) commit(step, {.keep = 1, .keep_every = 4});
  EXPECT_THAT(steps(), ElementsAre(10, 8, 4));
}

TEST_F(CheckpointStoreTest, KeepsTheNewestThatIsFinite) {
  commit(1, {.keep = 1});
  commit(2, {.keep = 1});
  for (int64_t step = 3; step <= 5; ++step) commit(step, {.keep = 1}, nan_);
  EXPECT_THAT(steps(), ElementsAre(5, 2));
  commit(6, {.keep = 1});
  EXPECT_THAT(steps(), ElementsAre(6));
}

TEST_F(CheckpointStoreTest, TakesADamagedOneForNotFinite) {
  commit(1, {.keep = 1});
  commit(2, {.keep = 0});
  testing::flip_bit(store_.folder_of(2) / kCheckpointManifest, 40);
  commit(3, {.keep = 1}, nan_);
  EXPECT_THAT(steps(), ElementsAre(3, 1));
}

// A job that begins anew in the folder of a longer one.
TEST_F(CheckpointStoreTest, KeepsTheOneThatWasWritten) {
  for (const int64_t step : {100, 200, 300}) commit(step, {.keep = 2});
  commit(50, {.keep = 2});
  EXPECT_THAT(steps(), ElementsAre(300, 200, 50));
  EXPECT_EQ(text_of(store_.root() / "latest"), "step-000000050\n");
  commit(60, {.keep = 2});
  EXPECT_THAT(steps(), ElementsAre(300, 200, 60));
}

TEST_F(CheckpointStoreTest, IgnoresForeignNames) {
  commit(5);
  for (const char* name : {"step-", "step-5", "step-0000000005", "step--00000005", "step-+00000005",
                           "step-00000000x", "step-99999999999999999999", "best", "step-000000006",
                           ".step-000000007", "STEP-000000008"}) {
    fs::create_directories(store_.root() / name);
    if (std::string_view(name) != "step-000000006") {
      write_text(store_.root() / name / kCheckpointManifest, "{}");
    }
  }
  write_text(store_.root() / "step-000000009", "a file");
  EXPECT_THAT(steps(), ElementsAre(5));
}

TEST_F(CheckpointStoreTest, CleansOnlyWhatIsUnfinished) {
  store_.clean();
  commit(5);
  write_checkpoint_part(store_.unfinished(6, "one"), 0, 2, {});
  write_checkpoint_part(store_.unfinished(6, "two.more"), 0, 2, {});
  write_checkpoint_part(store_.unfinished(7, "one"), 1, 2, {});
  const fs::path others[] = {store_.root() / "step-notes.tmp",
                             store_.root() / "step-000000008.tmpx", store_.root() / "other.tmp",
                             store_.root() / "step-000000008.tmp"};
  for (const fs::path& other : others) fs::create_directories(other);
  const fs::path file = store_.root() / "step-000000006.one.tmp.txt";
  write_text(file, "notes");
  std::vector<int64_t> unfinished;
  for (const StoredCheckpoint& left : store_.list_unfinished()) unfinished.push_back(left.step);
  EXPECT_THAT(unfinished, ElementsAre(7, 6, 6));
  store_.clean();
  EXPECT_THAT(store_.list_unfinished(), IsEmpty());
  EXPECT_THAT(steps(), ElementsAre(5));
  for (const fs::path& other : others) EXPECT_TRUE(fs::exists(other)) << other;
  EXPECT_TRUE(fs::exists(file));
}

}  // namespace
}  // namespace fleet::fluid::io
