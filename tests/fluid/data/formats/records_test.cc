#include "fluid/data/formats/records.h"

#include <gmock/gmock.h>

#include "fluid/core/lod.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Slots three() {
  return make_slots({SlotSpec::sparse("a"),
                     SlotSpec::dense("b", SlotType::kFloat, {2}),
                     {.name = "c", .type = SlotType::kId, .width = 1}});
}

// Records with 0, 1, 2, ... ids in the first slot.
RecordBatch batch_of(const Slots& slots, uint64_t records) {
  RecordBatch batch(slots);
  for (uint64_t i = 0; i < records; ++i) {
    for (uint64_t k = 0; k < i; ++k) batch.column(0).ids.push_back(10 * i + k);
    batch.column(0).ends.push_back(batch.column(0).ids.size());
    batch.column(1).floats.push_back(static_cast<float>(i));
    batch.column(1).floats.push_back(-static_cast<float>(i));
    batch.column(2).ids.push_back(i);
    batch.count(1);
  }
  return batch;
}

TEST(Records, BecomeTensorsAsPaddlesFeedHasThem) {
  const RecordBatch batch = batch_of(three(), 4);
  const RecordRange range{&batch, 1, 4};
  const std::vector<Tensor> tensors = tensors_of({&range, 1});
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].shape(), (Shape{6, 1}));
  EXPECT_THAT(tensors[0].values<int64_t>(), ElementsAre(10, 20, 21, 30, 31, 32));
  EXPECT_EQ(tensors[0].lod(), (LoD{{0, 1, 3, 6}}));
  EXPECT_EQ(tensors[1].shape(), (Shape{3, 2}));
  EXPECT_THAT(tensors[1].values<float>(), ElementsAre(1, -1, 2, -2, 3, -3));
  EXPECT_TRUE(tensors[1].lod().empty());
  EXPECT_EQ(tensors[2].lod(), (LoD{{0, 1, 2, 3}}));
  for (const Tensor& tensor : tensors) EXPECT_EQ(fault_of_lod(tensor), "");
}

TEST(Records, OfSeveralRangesAreOneBatch) {
  const Slots slots = three();
  const RecordBatch a = batch_of(slots, 3);
  const RecordBatch b = batch_of(three(), 4);
  const std::vector<RecordRange> ranges = {{&b, 3, 4}, {&a, 1, 1}, {&a, 0, 2}, {&b, 2, 3}};
  const std::vector<Tensor> tensors = tensors_of(ranges);
  EXPECT_THAT(tensors[0].values<int64_t>(), ElementsAre(30, 31, 32, 10, 20, 21));
  EXPECT_EQ(tensors[0].lod(), (LoD{{0, 3, 3, 4, 6}}));
  EXPECT_THAT(tensors[2].values<int64_t>(), ElementsAre(3, 0, 1, 2));
}

TEST(Records, IdsKeepAllTheirBits) {
  RecordBatch batch(make_slots({SlotSpec::sparse("a")}));
  batch.column(0).ids.push_back(~uint64_t{0});
  batch.column(0).ends.push_back(1);
  batch.count(1);
  const RecordRange all{&batch, 0, 1};
  EXPECT_EQ(tensors_of({&all, 1})[0].data<int64_t>()[0], -1);
}

TEST(Records, ShapesOfDenseSlotsAreGiven) {
  RecordBatch batch(make_slots({SlotSpec::dense("x", SlotType::kFloat, {2, 3, 1})}));
  for (int i = 0; i < 12; ++i) batch.column(0).floats.push_back(1);
  batch.count(2);
  const RecordRange all{&batch, 0, 2};
  EXPECT_EQ(tensors_of({&all, 1})[0].shape(), (Shape{2, 2, 3, 1}));
}

TEST(Records, AreAppendedAndRolledBack) {
  const RecordBatch from = batch_of(three(), 5);
  RecordBatch to(three());
  to.append({&from, 3, 5});
  to.append({&from, 1, 2});
  EXPECT_EQ(to.records(), 3);
  EXPECT_THAT(to.ids(0, 0), ElementsAre(30, 31, 32));
  EXPECT_THAT(to.ids(0, 2), ElementsAre(10));
  EXPECT_THAT(to.floats(1, 1), ElementsAre(4, -4));
  const uint64_t bytes = to.bytes();
  to.column(0).ids.push_back(7);
  to.column(1).floats.push_back(7);
  EXPECT_GT(to.bytes(), bytes);
  to.roll_back();
  EXPECT_EQ(to.bytes(), bytes);
  to.clear();
  EXPECT_EQ(to.records(), 0);
  EXPECT_EQ(to.bytes(), 0u);
}

TEST(Records, MistakesAreErrors) {
  EXPECT_THAT(message_of([] {
                make_slots({SlotSpec::sparse("a"), SlotSpec::sparse("a")});
              }),
              HasSubstr("same name"));
  EXPECT_THROW(make_slots({{.name = "a", .sequence = false}}), UsageError);
  EXPECT_THROW(make_slots({SlotSpec::dense("a", SlotType::kId, {2, -1})}), UsageError);
  EXPECT_THROW(make_slots({SlotSpec::dense("a", SlotType::kId, {int64_t{1} << 40, 1 << 30})}),
               UsageError);
  EXPECT_THROW(make_slots({{.name = ""}}), UsageError);
  const RecordBatch a = batch_of(three(), 2);
  RecordBatch other(make_slots({SlotSpec::sparse("z")}));
  EXPECT_THROW(other.append({&a, 0, 1}), UsageError);
  const RecordRange none{&a, 1, 1};
  EXPECT_THROW(tensors_of({&none, 1}), UsageError);
  EXPECT_THROW(tensors_of({}), UsageError);
}

}  // namespace
}  // namespace fleet::fluid::data
