#include "fluid/data/formats/record_reader.h"

#include <gmock/gmock.h>

#include "base/hash.h"
#include "fluid/data/formats/parsers/csv_parser.h"
#include "fluid/data/formats/parsers/multi_slot.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RecordReaderTest : public TextFiles {
 protected:
  RecordReaderTest() {
    uint64_t number = 0;
    for (int file = 0; file < 5; ++file) {
      std::string text;
      for (uint64_t i = 0; i < 100 + mix64(static_cast<uint64_t>(file)) % 400; ++i) {
        text += "1 " + std::to_string(number++) + "\n";
      }
      const std::string name = "part-" + std::to_string(file);
      files_.push_back(write(name, file == 2 ? gzip(text) : file == 3 ? zstd(text) : text));
    }
    files_.insert(files_.begin() + 2, write("empty", ""));
    records_ = number;
  }

  static std::vector<uint64_t> rest_of(RecordReader& reader, int64_t step = 37) {
    std::vector<uint64_t> ids;
    RecordBatch batch(reader.slots());
    while (reader.read(batch, step) > 0) {
      for (int64_t i = 0; i < batch.records(); ++i) ids.push_back(batch.ids(0, i)[0]);
      batch.clear();
    }
    return ids;
  }
  std::vector<uint64_t> all(const RecordReaderOptions& options) const {
    RecordReader reader(files_, parser_, options);
    return rest_of(reader);
  }

  std::shared_ptr<const RecordParser> parser_ =
      std::make_shared<MultiSlotParser>(std::vector<MultiSlotField>{{SlotSpec::sparse("id")}});
  std::vector<std::string> files_;
  uint64_t records_ = 0;
};

TEST_F(RecordReaderTest, ReadsFileAfterFile) {
  const std::vector<uint64_t> ids = all({.block_bytes = 200});
  ASSERT_EQ(ids.size(), records_);
  for (uint64_t i = 0; i < records_; ++i) EXPECT_EQ(ids[i], i);
}

TEST_F(RecordReaderTest, TheOrderDoesNotDependOnThreads) {
  for (const int side_by_side : {1, 2, 3, 9}) {
    RecordReaderOptions options = {
        .threads = 0, .side_by_side = side_by_side, .shuffle_seed = 5, .block_bytes = 100};
    const std::vector<uint64_t> expected = all(options);
    EXPECT_EQ(expected.size(), records_);
    EXPECT_EQ(std::set<uint64_t>(expected.begin(), expected.end()).size(), records_);
    for (const int threads : {1, 2, 4}) {
      options.threads = threads;
      EXPECT_EQ(all(options), expected) << threads;
    }
    options.shuffle_seed = 6;
    EXPECT_NE(all(options), expected);
  }
}

TEST_F(RecordReaderTest, GoesOnAtASavedPosition) {
  for (const int side_by_side : {1, 3}) {
    for (const int threads : {0, 2}) {
      const RecordReaderOptions options = {
          .threads = threads, .side_by_side = side_by_side, .block_bytes = 100};
      const std::vector<uint64_t> expected = all(options);
      for (const size_t before : {size_t{0}, size_t{1}, size_t{50}, size_t{333}, expected.size()}) {
        RecordReader reader(files_, parser_, options);
        RecordBatch batch(reader.slots());
        EXPECT_EQ(reader.read(batch, static_cast<int64_t>(before)), before);
        const std::string saved = reader.position().to_string();
        RecordReader other(
            files_, parser_,
            {.threads = 1 - threads / 2, .side_by_side = side_by_side, .block_bytes = 100});
        other.seek(ReaderPosition::parse(saved));
        EXPECT_EQ(other.position(), reader.position());
        EXPECT_EQ(rest_of(other),
                  std::vector(expected.begin() + static_cast<int64_t>(before), expected.end()))
            << before;
        // Back again, in the same reader.
        rest_of(reader);
        reader.seek(ReaderPosition::parse(saved));
        EXPECT_EQ(rest_of(reader).size(), expected.size() - before);
      }
    }
  }
}

TEST_F(RecordReaderTest, RefusesPositionsOfOthers) {
  EXPECT_THROW(ReaderPosition::parse(""), UsageError);
  EXPECT_THROW(ReaderPosition::parse("1 2 3"), UsageError);
  EXPECT_THROW(ReaderPosition::parse("1 2 3:4:x"), UsageError);
  EXPECT_THROW(ReaderPosition::parse("1 2 3:4:-5"), UsageError);
  RecordReader reader(files_, parser_);
  EXPECT_THROW(reader.seek(ReaderPosition::parse("0 0 0:0:1 1:0:1")), UsageError);
  EXPECT_THROW(reader.seek(ReaderPosition::parse("0 1000000 0:0:1")), UsageError);
  reader.seek(ReaderPosition::parse("0 0 0:1000000:1"));
  EXPECT_THROW(rest_of(reader), UsageError);
}

TEST_F(RecordReaderTest, GivesBatchesAsTensors) {
  RecordReader reader(files_, parser_, {.block_bytes = 64});
  uint64_t seen = 0;
  for (auto tensors = reader.next(64); !tensors.empty(); tensors = reader.next(64)) {
    ASSERT_THAT(tensors, SizeIs(1));
    for (const int64_t id : tensors[0].values<int64_t>()) {
      EXPECT_EQ(id, static_cast<int64_t>(seen++));
    }
    EXPECT_EQ(tensors[0].shape()[0], seen < records_ ? 64 : static_cast<int64_t>(records_ % 64));
  }
  EXPECT_EQ(seen, records_);
  EXPECT_EQ(reader.records_read(), records_);
  EXPECT_THAT(reader.next(64), IsEmpty());
}

TEST_F(RecordReaderTest, GivesWholeBlocks) {
  RecordReader reader(files_, parser_, {.threads = 2, .block_bytes = 128});
  RecordBatch some(reader.slots());
  reader.read(some, 3);
  uint64_t seen = 3;
  while (const auto block = reader.next_block()) {
    for (int64_t i = 0; i < block->records(); ++i) EXPECT_EQ(block->ids(0, i)[0], seen++);
  }
  EXPECT_EQ(seen, records_);
}

TEST_F(RecordReaderTest, MayBeLeftEarly) {
  for (const int threads : {0, 1, 3}) {
    RecordReader reader(files_, parser_, {.threads = threads, .block_bytes = 64});
    RecordBatch some(reader.slots());
    EXPECT_EQ(reader.read(some, 10), 10);
  }
  // Also where a command will never end.
  RecordReader waiting(files_, parser_, {.threads = 2, .pipe_command = "head -n 5; sleep 1000"});
  RecordReader never_asked(files_, parser_);
}

TEST_F(RecordReaderTest, BadLinesAreShownWithFileAndLine) {
  write("bad", "1 5\n\nx\n1 6\n1\n");
  RecordReader reader({files_[0], path("bad")}, parser_, {.block_bytes = 5});
  EXPECT_EQ(rest_of(reader).back(), 6u);
  EXPECT_EQ(reader.bad_lines().count(), 2u);
  ASSERT_THAT(reader.bad_lines().first(), SizeIs(2));
  EXPECT_EQ(reader.bad_lines().first()[0].file, path("bad"));
  EXPECT_EQ(reader.bad_lines().first()[0].line, 3u);
  EXPECT_EQ(reader.bad_lines().first()[1].line, 5u);
  EXPECT_THAT(reader.bad_lines().first()[1].to_string(), HasSubstr("line 5"));
}

TEST_F(RecordReaderTest, TooManyBadLinesAreAnErrorBehindTheRecordsBefore) {
  write("bad", "1 1\n1 2\nfirst\n1 3\nsecond\n");
  for (const int threads : {0, 2}) {
    RecordReader reader({path("bad")}, parser_,
                        {.threads = threads, .max_bad_lines = 1, .block_bytes = 4});
    RecordBatch batch(reader.slots());
    EXPECT_EQ(reader.read(batch, 100), 3);
    for (int again = 0; again < 2; ++again) {
      const std::string text = message_of([&] { reader.read(batch, 100); });
      EXPECT_THAT(text, HasSubstr("more than 1 lines"));
      EXPECT_THAT(text, HasSubstr(path("bad") + " line 3"));
      EXPECT_THAT(text, HasSubstr("line 5"));
      EXPECT_THAT(text, HasSubstr("max_bad_lines"));
    }
  }
}

TEST_F(RecordReaderTest, MissingFilesAreErrorsWhenTheyAreReached) {
  for (const int threads : {0, 2}) {
    RecordReader reader({files_[0], path("none")}, parser_, {.threads = threads});
    RecordBatch batch(reader.slots());
    EXPECT_GT(reader.read(batch, 1 << 20), 0);
    EXPECT_THAT(message_of([&] { reader.read(batch, 1); }), HasSubstr(path("none")));
    EXPECT_THAT(message_of([&] { reader.read(batch, 1); }), HasSubstr(path("none")));
  }
}

TEST_F(RecordReaderTest, CommandsThatFailAreErrors) {
  RecordReader reader({files_[0]}, parser_, {.pipe_command = "head -n 2; exit 9"});
  RecordBatch batch(reader.slots());
  EXPECT_EQ(reader.read(batch, 100), 2);
  EXPECT_THAT(message_of([&] { reader.read(batch, 1); }), HasSubstr("exit code 9"));
}

// Lines are counted through headers, quoted line ends and saved positions.
TEST_F(RecordReaderTest, EveryFileHasItsHeader) {
  const auto csv =
      std::make_shared<CsvParser>(std::vector<CsvSlot>{{.name = "b", .kind = CsvKind::kId}});
  write("1.csv", "a,b\n\"x\ny\",1\nz,2\n");
  write("2.csv", "b,a\n3,x\n4,y\nbad,z\n");
  for (size_t bytes = 1; bytes < 40; bytes += 2) {
    RecordReader reader({path("1.csv"), path("2.csv")}, csv, {.block_bytes = bytes});
    RecordBatch some(reader.slots());
    EXPECT_EQ(reader.read(some, 3), 3);
    RecordReader other({path("1.csv"), path("2.csv")}, csv, {.block_bytes = bytes});
    other.seek(reader.position());
    for (RecordReader* each : {&reader, &other}) {
      EXPECT_THAT(rest_of(*each), ElementsAre(4));
      ASSERT_EQ(each->bad_lines().count(), 1u);
      EXPECT_EQ(each->bad_lines().first()[0].line, 4u);
    }
  }
}

TEST_F(RecordReaderTest, OptionsThatCannotBeAreMistakes) {
  EXPECT_THROW(RecordReader(files_, parser_, {.threads = -1}), UsageError);
  EXPECT_THROW(RecordReader(files_, parser_, {.side_by_side = 0}), UsageError);
  EXPECT_THROW(RecordReader(files_, parser_, {.block_bytes = 0}), UsageError);
  RecordReader none({}, parser_);
  EXPECT_THAT(none.next(5), IsEmpty());
}

}  // namespace
}  // namespace fleet::fluid::data
