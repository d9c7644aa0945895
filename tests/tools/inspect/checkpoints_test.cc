#include "tools/inspect/checkpoints.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/fluid/io/temporary_directory.h"

namespace fleet::inspect {
namespace {

using fluid::NamedTensors;
using fluid::Tensor;
using fluid::io::CheckpointStore;
using fluid::testing::commit_checkpoint;
using fluid::testing::sample_info;
using fluid::testing::sample_tensors;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Checkpoints : public ::testing::Test {
 protected:
  void commit(int64_t step, const NamedTensors& tensors = sample_tensors()) const {
    commit_checkpoint(store_, tensors, sample_info(step));
  }
  void damage(int64_t step, const char* file, size_t from_end) const {
    const auto path = store_.folder_of(step) / file;
    fluid::testing::flip_bit(path, std::filesystem::file_size(path) - from_end);
  }
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const ResourceError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  const fluid::testing::TemporaryDirectory directory_;
  const CheckpointStore store_{directory_.path() / "checkpoints"};
};

TEST_F(Checkpoints, AreFoundByTheirFolder) {
  commit(20);
  commit(100);
  EXPECT_EQ(find_checkpoint(store_.root()), store_.folder_of(100));
  EXPECT_EQ(find_checkpoint(store_.root() / ""), store_.folder_of(100));
  EXPECT_EQ(find_checkpoint(store_.folder_of(20)), store_.folder_of(20));
  EXPECT_EQ(find_checkpoint(store_.folder_of(20) / ""), store_.folder_of(20));
  EXPECT_THAT(error_of([&] { find_checkpoint(store_.root() / "step-00000020"); }),
              AllOf(HasSubstr("no such folder"), HasSubstr("did you mean 'step-000000020'")));
  fluid::testing::write_parts(directory_.path() / "other/step-000000001.job.tmp", 1, {});
  EXPECT_THAT(error_of([&] { find_checkpoint(directory_.path() / "other"); }),
              AllOf(HasSubstr("no whole checkpoint"), HasSubstr("1 unfinished")));
}

TEST_F(Checkpoints, AreListed) {
  commit(20);
  commit(30, {{"w", Tensor::scalar(std::numeric_limits<float>::infinity())}});
  commit(40);
  damage(40, "manifest.json", 30);
  fluid::testing::write_parts(store_.unfinished(50, "job"), 1, {});
  const Listing listing = list_checkpoints(store_.root());
  ASSERT_EQ(listing.checkpoints.size(), 3U);
  const Checkpoint& damaged = listing.checkpoints[0];
  EXPECT_EQ(damaged.info.step, 40);
  EXPECT_THAT(damaged.status.to_string(), HasSubstr("manifest"));
  EXPECT_EQ(listing.checkpoints[1].info, sample_info(30));
  EXPECT_FALSE(listing.checkpoints[1].finite);
  EXPECT_EQ(listing.checkpoints[1].tensors.size(), 1U);
  EXPECT_TRUE(listing.checkpoints[2].finite);
  EXPECT_EQ(listing.checkpoints[2].tensors.size(), sample_tensors().size());
  EXPECT_GT(listing.checkpoints[2].bytes, 0U);
  EXPECT_LT(listing.checkpoints[2].age_s, 600);
  EXPECT_THAT(listing.unfinished, ElementsAre("step-000000050.job.tmp"));
  EXPECT_THAT(error_of([&] { list_checkpoints(store_.folder_of(20)); }),
              HasSubstr("itself a checkpoint"));
  EXPECT_THAT(error_of([&] { list_checkpoints(directory_.path() / "none"); }),
              HasSubstr("no such folder"));
}

TEST_F(Checkpoints, AreReadWithTheirValues) {
  commit(20, {{"a", Tensor::from<float>({3, -4}, {2})}, {"b", Tensor::scalar(int64_t{7})}});
  const Checkpoint plain = read_checkpoint(store_.root(), false);
  EXPECT_EQ(plain.folder, store_.folder_of(20));
  ASSERT_EQ(plain.tensors.size(), 2U);
  EXPECT_EQ(plain.tensors[0].name, "a");
  EXPECT_EQ(plain.tensors[0].bytes, 8U);
  EXPECT_FALSE(plain.tensors[0].values);
  const Checkpoint values = read_checkpoint(store_.root(), true);
  EXPECT_EQ(values.tensors[0].values->norm, 5);
  EXPECT_EQ(values.tensors[1].values->most, 7);
}

TEST_F(Checkpoints, AreVerifiedToTheLastTensor) {
  commit(20);
  commit(30);
  commit(40);
  EXPECT_TRUE(all_whole(verify(store_.root())));
  damage(30, "part-0-of-2.safetensors", 1);
  damage(30, "part-1-of-2.safetensors", 1);
  std::filesystem::remove(store_.folder_of(40) / "part-0-of-2.safetensors");
  damage(40, "part-1-of-2.safetensors", 1);
  const auto verified = verify(store_.root());
  EXPECT_FALSE(all_whole(verified));
  ASSERT_EQ(verified.size(), 3U);
  EXPECT_EQ(verified[0].damage.size(), 2U);
  EXPECT_EQ(verified[1].damage.size(), 2U);
  EXPECT_THAT(verified[1].damage[0].to_string(), HasSubstr("part-"));
  EXPECT_THAT(verified[2].damage, IsEmpty());
  EXPECT_EQ(verify(store_.folder_of(20)).size(), 1U);
  EXPECT_THAT(error_of([&] { verify(directory_.path()); }), HasSubstr("no whole checkpoint"));
}

TEST_F(Checkpoints, AreCompared) {
  commit(20, {{"equal", Tensor::scalar(1.0F)},
              {"gone", Tensor::scalar(1.0F)},
              {"shape", Tensor::from<float>({1, 2}, {2})},
              {"type", Tensor::scalar(1.0F)},
              {"value", Tensor::from<float>({1, 2}, {2})}});
  commit(30, {{"equal", Tensor::scalar(1.0F)},
              {"new", Tensor::scalar(1.0F)},
              {"shape", Tensor::from<float>({1, 2}, {1, 2})},
              {"type", Tensor::scalar(1.0)},
              {"value", Tensor::from<float>({1, 4}, {2})}});
  const Comparison comparison = compare(store_.folder_of(20), store_.root());
  EXPECT_EQ(comparison.b, store_.folder_of(30));
  ASSERT_EQ(comparison.info.size(), 1U);
  EXPECT_EQ(comparison.info[0].field, "step");
  EXPECT_EQ(comparison.info[0].a, "20");
  EXPECT_EQ(comparison.info[0].b, "30");
  EXPECT_EQ(comparison.equal, 1U);
  std::vector<std::string> names;
  for (const TensorDifference& tensor : comparison.tensors) names.push_back(tensor.name);
  ASSERT_THAT(names, ElementsAre("gone", "new", "shape", "type", "value"));
  EXPECT_FALSE(comparison.tensors[0].b);
  EXPECT_FALSE(comparison.tensors[1].a);
  EXPECT_FALSE(comparison.tensors[2].values);
  EXPECT_FALSE(comparison.tensors[3].values);
  EXPECT_EQ(comparison.tensors[4].values->elements, 1);
  EXPECT_EQ(comparison.tensors[4].values->absolute, 2);
  EXPECT_EQ(comparison.tensors[4].values->relative, 0.5);
}

TEST_F(Checkpoints, AreComparedByReadersAndValues) {
  fluid::io::CheckpointInfo info = sample_info(20);
  commit_checkpoint(store_, {}, info);
  info.step = 30;
  info.readers = {{"train", 5}};
  info.values["more"] = "1";
  commit_checkpoint(store_, {}, info);
  std::vector<std::string> fields;
  for (const auto& [field, a, b] : compare(store_.folder_of(20), store_.folder_of(30)).info) {
    fields.push_back(field + ": " + a.value_or("none") + ", " + b.value_or("none"));
  }
  EXPECT_THAT(fields, ElementsAre("step: 20, 30", "readers/other: 0, none",
                                  "readers/train: 1200, 5", "values/more: none, 1"));
}

}  // namespace
}  // namespace fleet::inspect
