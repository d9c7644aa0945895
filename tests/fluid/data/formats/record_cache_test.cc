#include "fluid/data/formats/record_cache.h"

#include <cstring>
#include <gmock/gmock.h>

#include "fluid/data/formats/parsers/multi_slot.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::HasSubstr;

class RecordCacheTest : public TextFiles {
 protected:
  RecordCacheTest() {
    for (int i = 0; i < 23; ++i) {
      text_ += std::to_string(i % 4 + 1);
      for (int k = 0; k <= i % 4; ++k) text_ += " " + std::to_string(100 * i + k);
      text_ += " 2 0.5 " + std::to_string(i) + " 1 " + std::to_string(i) + "\n";
    }
    parsed_.emplace(parser_, text_);
  }
  std::string written(int64_t group_records = 5) {
    CacheWriter writer(path("cache"), parser_.slots(), {.group_records = group_records});
    writer.append({&parsed_->batch, 0, 7});
    writer.append({&parsed_->batch, 7, 23});
    writer.finish();
    return path("cache");
  }

  MultiSlotParser parser_{{{SlotSpec::sparse("a")},
                           {SlotSpec::dense("b", SlotType::kFloat, {2})},
                           {{.name = "c", .type = SlotType::kId, .width = 1}}}};
  std::string text_;
  std::optional<Parsed> parsed_;
};

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].shape(), b[i].shape());
    EXPECT_EQ(a[i].lod(), b[i].lod());
    EXPECT_EQ(std::memcmp(a[i].raw(), b[i].raw(), a[i].bytes()), 0);
  }
}

TEST_F(RecordCacheTest, GivesBackWhatWasWritten) {
  for (const int64_t group : {1, 5, 23, 100}) {
    const RecordCache cache(written(group));
    EXPECT_EQ(cache.records(), 23);
    EXPECT_EQ(cache.groups(), (23 + group - 1) / group);
    EXPECT_EQ(*cache.slots(), *parser_.slots());
    const std::vector<int64_t> numbers = {22, 0, 5, 5, 13};
    std::vector<RecordRange> expected;
    expected.reserve(numbers.size());
    for (const int64_t i : numbers) expected.push_back({&parsed_->batch, i, i + 1});
    expect_equal(cache.read(numbers), tensors_of(expected));
  }
}

TEST_F(RecordCacheTest, MayBeEmpty) {
  CacheWriter writer(path("cache"), parser_.slots());
  writer.finish();
  const RecordCache cache(path("cache"));
  EXPECT_EQ(cache.records(), 0);
  EXPECT_THROW(cache.range_of(0), UsageError);
  EXPECT_THROW(writer.append(parsed_->batch), UsageError);
}

TEST_F(RecordCacheTest, HasItsNameOnlyWhenItIsWhole) {
  {
    CacheWriter writer(path("cache"), parser_.slots());
    writer.append(parsed_->batch);
    EXPECT_FALSE(std::filesystem::exists(path("cache")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_THAT(message_of([&] { CacheWriter(path("no/cache"), parser_.slots()); }),
              HasSubstr(path("no/cache")));
}

TEST_F(RecordCacheTest, NumbersThatThereAreNotAreMistakes) {
  const RecordCache cache(written());
  EXPECT_THROW(cache.range_of(23), UsageError);
  EXPECT_THROW(cache.range_of(-1), UsageError);
  EXPECT_THROW(cache.group(5), UsageError);
}

TEST_F(RecordCacheTest, ForeignAndNewerFilesAreTold) {
  EXPECT_THROW(RecordCache(path("none")), ResourceError);
  EXPECT_THAT(message_of([&] { RecordCache(write("few", "x")); }), HasSubstr("header"));
  EXPECT_THROW(RecordCache(write("empty", "")), ResourceError);
  EXPECT_THAT(message_of([&] { RecordCache(write("text", std::string(1000, 'x'))); }),
              HasSubstr("another beginning"));
  std::string newer = read(written());
  newer[8] = 9;
  EXPECT_THAT(message_of([&] { RecordCache(write("newer", newer)); }), HasSubstr("version 9"));
}

// Reading all records of a file of which one byte is another throws or gives the same records:
// there are bytes between the arrays that nobody reads.
TEST_F(RecordCacheTest, DamageIsFound) {
  const std::string whole = read(written());
  std::vector<int64_t> all(23);
  for (int64_t i = 0; i < 23; ++i) all[static_cast<size_t>(i)] = i;
  const RecordRange range{&parsed_->batch, 0, 23};
  const std::vector<Tensor> expected = tensors_of({&range, 1});
  int found = 0;
  for (size_t i = 0; i < whole.size(); i += 7) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << i % 8));
    write("damaged", damaged);
    try {
      expect_equal(RecordCache(path("damaged")).read(all), expected);
    } catch (const Error& error) {
      ++found;
      EXPECT_THAT(error.text().where, HasSubstr(path("damaged") + ", "));
    }
  }
  EXPECT_GT(found, static_cast<int>(whole.size()) / 7 / 3);
}

TEST_F(RecordCacheTest, CutFilesAreFound) {
  const std::string whole = read(written());
  for (size_t size = 0; size < whole.size(); size += 11) {
    write("cut", whole.substr(0, size));
    EXPECT_THROW(RecordCache(path("cut")), ResourceError) << size;
  }
}

TEST_F(RecordCacheTest, ADamagedGroupIsNamedAndOthersAreRead) {
  const std::string file = written();
  std::string damaged = read(file);
  const float value = 7;  // of record 7, in group 1
  const size_t at = damaged.find(std::string(reinterpret_cast<const char*>(&value), 4));
  ASSERT_NE(at, std::string::npos);
  damaged[at] ^= 1;
  const RecordCache cache(write("damaged", damaged));
  EXPECT_NO_THROW(cache.range_of(2));
  EXPECT_THAT(message_of([&] { cache.range_of(7); }), HasSubstr("group 1 slot 'b'"));
  EXPECT_THAT(message_of([&] { cache.range_of(8); }), HasSubstr("group 1 slot 'b'"));
}

}  // namespace
}  // namespace fleet::fluid::data
