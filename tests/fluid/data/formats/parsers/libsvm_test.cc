#include "fluid/data/formats/parsers/libsvm.h"

#include <gmock/gmock.h>

#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Libsvm, ReadsSparseFeatures) {
  const Parsed parsed(LibsvmParser(), "+1 3:0.5 7:-2\n-1\n\n0.5 1:1 # comment 9:9\r\n");
  ASSERT_EQ(parsed.batch.records(), 3);
  EXPECT_THAT(parsed.floats(0, 0), ElementsAre(1));
  EXPECT_THAT(parsed.ids(1, 0), ElementsAre(3, 7));
  EXPECT_THAT(parsed.floats(2, 0), ElementsAre(0.5f, -2));
  EXPECT_THAT(parsed.ids(1, 1), IsEmpty());
  EXPECT_THAT(parsed.ids(1, 2), ElementsAre(1));
  EXPECT_EQ(parsed.lines, 4u);
}

TEST(Libsvm, ReadsDenseFeaturesAndQids) {
  const Parsed parsed(LibsvmParser({.features = 3, .qid = true}), "1 qid:12 1:5 3:6\n0 qid:13\n");
  ASSERT_EQ(parsed.batch.records(), 2);
  EXPECT_THAT(parsed.ids(1, 0), ElementsAre(12));
  EXPECT_THAT(parsed.floats(2, 0), ElementsAre(5, 0, 6));
  EXPECT_THAT(parsed.floats(2, 1), ElementsAre(0, 0, 0));
  const Parsed zero(LibsvmParser({.features = 2, .zero_based = true}), "1 0:5 1:6\n");
  EXPECT_THAT(zero.floats(1, 0), ElementsAre(5, 6));
}

TEST(Libsvm, BadLinesAreLeftOutWithTheirReason) {
  const auto reason = [](const LibsvmOptions& options, const std::string& line) {
    const Parsed parsed(LibsvmParser(options), line + "\n");
    EXPECT_EQ(parsed.batch.records(), 0);
    EXPECT_EQ(parsed.bad.count(), 1u) << line;
    return parsed.bad.count() > 0 ? parsed.reason(0) : "";
  };
  EXPECT_THAT(reason({}, "x 1:2"), HasSubstr("label"));
  EXPECT_THAT(reason({}, ":1"), HasSubstr("label"));
  EXPECT_THAT(reason({}, "1 x:2"), HasSubstr("index"));
  for (const std::string line : {"1 2", "1 2:", "1 2: 3", "1 2 :3", "1 2::3", "1 2:x", "1 2:3:4"}) {
    reason({}, line);
  }
  EXPECT_THAT(reason({}, "1 qid:3 1:2"), HasSubstr("qid"));
  EXPECT_THAT(reason({.qid = true}, "1 1:2"), HasSubstr("qid"));
  EXPECT_THAT(reason({.qid = true}, "1"), HasSubstr("qid"));
  EXPECT_THAT(reason({.features = 2}, "1 3:1"), HasSubstr("not among"));
  EXPECT_THAT(reason({.features = 2}, "1 0:1"), HasSubstr("not among"));
  EXPECT_THROW(LibsvmParser({.features = -1}), UsageError);
}

}  // namespace
}  // namespace fleet::fluid::data
