#include <barrier>
#include <chrono>
#include <gmock/gmock.h>
#include <thread>

#include "fluid/data/formats/datasets/dataset_factory.h"
#include "fluid/data/formats/datasets/in_memory_dataset.h"
#include "fluid/data/formats/parsers/criteo.h"
#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kRecords = 1000;

class Datasets : public TextFiles {
 protected:
  Datasets() {
    int64_t number = 0;
    for (int file = 0; file < 4; ++file) {
      std::string text;
      for (; number < (file + 1) * kRecords / 4; ++number) {
        text += "1 " + std::to_string(number) + " 2 0.5 " + std::to_string(number) + "\n";
      }
      write("part-" + std::to_string(file), text);
    }
  }

  std::unique_ptr<DatasetBase> made(const std::string& kind, int threads = 1) const {
    auto dataset = DatasetFactory().create_dataset(kind);
    dataset->set_batch_size(32);
    dataset->set_thread(threads);
    dataset->set_filelist({path("part-*")});
    dataset->set_use_var({{.name = "id", .lod_level = 1},
                          {.name = "x", .dtype = DType::kFloat32, .shape = {-1, 2}}});
    return dataset;
  }

  static std::vector<int64_t> ids(DatasetBatches& batches) {
    std::vector<int64_t> all;
    for (auto feed = batches.next(); !feed.empty(); feed = batches.next()) {
      const auto values = feed[0].values<int64_t>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  static std::vector<int64_t> ids(DatasetBase& dataset) { return ids(*dataset.batches()); }
};

TEST_F(Datasets, OfBothKindsFeedTheFilesInOrder) {
  for (const char* kind : {"QueueDataset", "InMemoryDataset"}) {
    const auto dataset = made(kind, 2);
    if (kind[0] == 'I') dataset->load_into_memory();
    const auto batches = dataset->batches();
    const std::vector<Tensor> first = batches->next();
    ASSERT_THAT(first, SizeIs(2));
    EXPECT_EQ(first[0].shape(), (Shape{32, 1}));
    EXPECT_EQ(first[0].lod()[0].back(), 32);
    EXPECT_EQ(first[1].shape(), (Shape{32, 2}));
    EXPECT_EQ(first[1].data<float>()[3], 1);
    const std::vector<int64_t> rest = ids(*batches);
    ASSERT_THAT(rest, SizeIs(kRecords - 32));
    for (int64_t i = 0; i < kRecords - 32; ++i) EXPECT_EQ(rest[static_cast<size_t>(i)], i + 32);
    EXPECT_THAT(ids(*dataset), SizeIs(kRecords));
  }
}

TEST_F(Datasets, ThreadsShareTheBatches) {
  for (const char* kind : {"QueueDataset", "InMemoryDataset"}) {
    const auto dataset = made(kind);
    if (kind[0] == 'I') dataset->load_into_memory();
    const auto batches = dataset->batches();
    std::vector<std::vector<int64_t>> of_threads(3);
    std::vector<std::thread> threads;
    threads.reserve(of_threads.size());
    for (auto& own : of_threads) threads.emplace_back([&] { own = ids(*batches); });
    for (std::thread& thread : threads) thread.join();
    std::set<int64_t> all;
    for (const auto& own : of_threads) all.insert(own.begin(), own.end());
    EXPECT_THAT(all, SizeIs(kRecords));
  }
}

TEST_F(Datasets, GoOnAtASavedPosition) {
  for (const char* kind : {"QueueDataset", "InMemoryDataset"}) {
    const auto dataset = made(kind);
    if (kind[0] == 'I') {
      dataset->load_into_memory();
      dataset->local_shuffle(3);
    }
    const auto batches = dataset->batches();
    for (int i = 0; i < 5; ++i) batches->next();
    const std::string saved = batches->position();
    const std::vector<int64_t> rest = ids(*batches);
    EXPECT_THAT(rest, SizeIs(kRecords - 5 * 32));
    const auto again = dataset->batches();
    again->seek(saved);
    EXPECT_EQ(ids(*again), rest);
    EXPECT_THROW(again->seek("x"), UsageError);
  }
}

TEST_F(Datasets, LastBatchesAreCutToPartsThatAreEqual) {
  for (const char* kind : {"QueueDataset", "InMemoryDataset"}) {
    const auto dataset = made(kind);
    if (kind[0] == 'I') dataset->load_into_memory();
    dataset->set_batch_size(48);  // 1000 = 20 * 48 + 40
    const auto batches = dataset->batches(16);
    EXPECT_EQ(batches->records_left().has_value(), kind[0] == 'I');
    EXPECT_EQ(batches->records_left().value_or(992), 992U);
    std::vector<Tensor> last;
    int64_t records = 0;
    for (auto feed = batches->next(); !feed.empty(); feed = batches->next()) {
      records += feed[1].shape()[0];
      last = feed;
    }
    EXPECT_EQ(records, 992);
    EXPECT_EQ(last[1].shape()[0], 32);
    EXPECT_EQ(batches->records_left().value_or(0), 0U);
    EXPECT_THAT(message_of([&] { dataset->batches(5); }), HasSubstr("batch size that 5 divides"));
    EXPECT_THROW(dataset->batches(0), UsageError);
  }
}

// A reader that waits for a command ends when another thread says so.
TEST_F(Datasets, ReadingCanBeEnded) {
  for (const int threads : {1, 3}) {
    const auto dataset = made("QueueDataset", threads);
    dataset->set_filelist({path("part-0"), path("part-1")});
    dataset->set_pipe_command("cat; sleep 60");
    const auto batches = dataset->batches();
    const auto begin = std::chrono::steady_clock::now();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      batches->cancel();
    });
    try {
      for (int i = 0; i < 1000; ++i) batches->next();
      ADD_FAILURE() << "nothing is thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    }
    other.join();
    EXPECT_THROW(batches->next(), Error);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  }
}

TEST_F(Datasets, LocalShufflesDependOnTheSeedAlone) {
  const auto dataset = made("InMemoryDataset", 2);
  EXPECT_THROW(dataset->local_shuffle(), UsageError);
  EXPECT_THROW(dataset->batches(), UsageError);
  dataset->load_into_memory();
  EXPECT_EQ(dataset->get_shuffle_data_size(), 0);
  dataset->local_shuffle(1);
  const std::vector<int64_t> first = ids(*dataset);
  dataset->local_shuffle(2);
  EXPECT_NE(ids(*dataset), first);
  dataset->local_shuffle(1);
  EXPECT_EQ(ids(*dataset), first);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), kRecords);
  EXPECT_EQ(dataset->get_shuffle_data_size(), kRecords);
  EXPECT_EQ(dataset->get_memory_data_size(), kRecords);
  dataset->release_memory();
  EXPECT_EQ(dataset->get_memory_data_size(), 0);
}

// Before or after loading, with any number of threads, and as worker_of_record says.
TEST_F(Datasets, GlobalShufflesGiveEveryRecordToOneWorker) {
  constexpr int kWorkers = 3;
  std::vector<int64_t> all;
  for (int worker = 0; worker < kWorkers; ++worker) {
    const auto before = made("InMemoryDataset");
    before->global_shuffle(9, worker, kWorkers);
    before->load_into_memory();
    const std::vector<int64_t> own = ids(*before);
    EXPECT_EQ(before->get_memory_data_size(), static_cast<int64_t>(own.size()));
    EXPECT_NEAR(static_cast<double>(own.size()), kRecords / 3.0, 60);
    for (const int64_t id : own) {
      EXPECT_EQ(worker_of_record(9, static_cast<uint64_t>(id), kWorkers), worker);
    }
    EXPECT_FALSE(std::is_sorted(own.begin(), own.end()));
    const auto after = made("InMemoryDataset", 3);
    after->load_into_memory();
    after->global_shuffle(9, worker, kWorkers);
    EXPECT_EQ(ids(*after), own);
    after->global_shuffle(10, worker, kWorkers);
    EXPECT_NE(ids(*after), own);
    after->global_shuffle(9, worker, kWorkers);
    EXPECT_EQ(ids(*after), own);
    all.insert(all.end(), own.begin(), own.end());
  }
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), kRecords);
  EXPECT_THAT(all, SizeIs(kRecords));
  EXPECT_THROW(made("InMemoryDataset")->global_shuffle(0, 3, 3), UsageError);
}

// Threads for workers, which meet by counting.
TEST_F(Datasets, WorkersThatExchangeRecordsHaveTheSameShuffle) {
  write("part-1", "");  // more workers than files that have records
  for (const int workers : {1, 3, 5}) {
    SCOPED_TRACE(workers);
    std::vector<std::vector<int64_t>> exchanged(static_cast<size_t>(workers));
    std::barrier meeting(workers);
    const auto work = [&](int worker) {
      const auto dataset = made("InMemoryDataset", 1 + worker % 2);
      dataset->global_shuffle(9, worker, workers, {.folder = path("exchange"), .meet = [&meeting] {
                                                     meeting.arrive_and_wait();
                                                   }});
      exchanged[static_cast<size_t>(worker)] = ids(*dataset);
    };
    std::vector<std::thread> threads;
    threads.reserve(exchanged.size());
    for (int worker = 0; worker < workers; ++worker) threads.emplace_back(work, worker);
    for (std::thread& thread : threads) thread.join();
    size_t all = 0;
    for (int worker = 0; worker < workers; ++worker) {
      const auto alone = made("InMemoryDataset");
      alone->global_shuffle(9, worker, workers);
      alone->load_into_memory();
      EXPECT_EQ(exchanged[static_cast<size_t>(worker)], ids(*alone));
      all += exchanged[static_cast<size_t>(worker)].size();
    }
    EXPECT_EQ(all, 3U * kRecords / 4);
    EXPECT_TRUE(std::filesystem::is_empty(path("exchange")));
  }
}

TEST_F(Datasets, ExchangesThatCannotBeAreErrors) {
  const auto dataset = made("InMemoryDataset");
  const RecordExchange nowhere{.folder = path("part-0") + "/folder", .meet = [] {}};
  EXPECT_THAT(message_of([&] { dataset->global_shuffle(1, 0, 2, nowhere); }),
              HasSubstr("part-0/folder"));
  const RecordExchange alone{.folder = path("exchange"), .meet = [] {}};
  EXPECT_THAT(message_of([&] { dataset->global_shuffle(1, 0, 2, alone); }),
              HasSubstr("records-from-1-to-0"));
  EXPECT_THROW(dataset->global_shuffle(1, 2, 2, alone), UsageError);
  dataset->set_side_by_side(2);
  EXPECT_THAT(message_of([&] { dataset->global_shuffle(1, 0, 1, alone); }),
              HasSubstr("side_by_side"));
  EXPECT_THROW(made("QueueDataset")->global_shuffle(1, 0, 1, alone), Error);
}

TEST_F(Datasets, ReadOtherFormatsByTheNamesOfTheirSlots) {
  std::string line = "1";
  for (int i = 0; i < 39; ++i) line += "\t" + std::to_string(i);
  write("criteo", line + "\nbad\n" + line + "\n");
  const auto dataset = made("QueueDataset");
  dataset->set_filelist({path("criteo")});
  dataset->set_parser(std::make_shared<CriteoParser>());
  dataset->set_use_var({{.name = "C2", .lod_level = 1}, {.name = "label", .shape = {-1, 1}}});
  const auto batches = dataset->batches();
  const std::vector<Tensor> feed = batches->next();
  ASSERT_THAT(feed, SizeIs(2));
  EXPECT_THAT(feed[1].values<int64_t>(), ElementsAre(1, 1));
  EXPECT_EQ(batches->bad_lines(), 1u);
  ASSERT_THAT(batches->first_bad_lines(), SizeIs(1));
  EXPECT_EQ(batches->first_bad_lines()[0].line, 2U);
  dataset->set_max_bad_lines(0);
  const auto strict = dataset->batches();
  EXPECT_THROW(strict->next(), ResourceError);
  dataset->set_use_var({{.name = "C27"}});
  EXPECT_THAT(message_of([&] { dataset->batches(); }), HasSubstr("did you mean 'C2"));
  dataset->set_use_var({{.name = "label", .dtype = DType::kFloat32}});
  EXPECT_THROW(dataset->batches(), ProgramError);
}

TEST_F(Datasets, PipeCommandsMakeTheRecords) {
  const auto dataset = made("QueueDataset");
  dataset->set_pipe_command("head -n 3");
  EXPECT_THAT(ids(*dataset), SizeIs(12));
}

TEST_F(Datasets, MistakesAreErrors) {
  EXPECT_THAT(message_of([] { DatasetFactory().create_dataset("InMemoryDatset"); }),
              HasSubstr("did you mean 'InMemoryDataset'"));
  const auto dataset = made("QueueDataset");
  EXPECT_THAT(message_of([&] { dataset->local_shuffle(); }), HasSubstr("InMemoryDataset"));
  EXPECT_THROW(dataset->load_into_memory(), Error);
  EXPECT_THAT(message_of([&] { dataset->set_hdfs_config("hdfs://a", "u,p"); }),
              HasSubstr("not of HDFS"));
  EXPECT_THROW(dataset->set_batch_size(0), UsageError);
  EXPECT_THROW(dataset->set_thread(0), UsageError);
  EXPECT_THROW(dataset->set_side_by_side(0), UsageError);
  EXPECT_THROW(dataset->set_use_var({{.name = "a", .dtype = DType::kFloat64}}), UsageError);
  EXPECT_THROW(dataset->set_use_var({{.name = "a", .lod_level = 2}}), UsageError);
  EXPECT_THROW(dataset->set_use_var({{.name = "a", .shape = {-1, -1}}}), UsageError);
  const auto without = DatasetFactory().create_dataset("QueueDataset");
  without->set_use_var({{.name = "id", .lod_level = 1}});
  EXPECT_THAT(message_of([&] { without->batches(); }), HasSubstr("set_filelist"));
  dataset->set_filelist({path("none*")});
  EXPECT_THROW(dataset->batches(), UsageError);
}

// As of a worker that split_files() left none for.
TEST_F(Datasets, OfNoFilesHaveNoBatches) {
  for (const char* kind : {"QueueDataset", "InMemoryDataset"}) {
    const auto dataset = made(kind);
    dataset->set_filelist({});
    if (kind[0] == 'I') dataset->load_into_memory();
    EXPECT_THAT(ids(*dataset), SizeIs(0));
  }
}

TEST_F(Datasets, AnErrorBehindTooFewRecordsForAllPartsIsSaid) {
  const auto dataset = made("QueueDataset");
  // Three records of the last batch are there, when four parts need one each.
  write("part-0", "1 1 2 0 0\n1 2 2 0 0\n1 3 2 0 0\n");
  dataset->set_filelist({path("part-0"), path("none")});
  dataset->set_batch_size(4);
  const auto batches = dataset->batches(4);
  EXPECT_THAT(message_of([&] { batches->next(); }), HasSubstr(path("none")));
}

TEST_F(Datasets, BatchesFromAnyPositionAreCutToPartsThatAreEqual) {
  const auto dataset = made("InMemoryDataset");
  dataset->load_into_memory();
  const auto batches = dataset->batches(16);
  batches->seek("5");  // 995 records are left, 992 in whole parts
  EXPECT_EQ(batches->records_left().value_or(0), 992U);
  const std::vector<int64_t> all = ids(*batches);
  ASSERT_THAT(all, SizeIs(992));
  EXPECT_EQ(all.front(), 5);
}

TEST_F(Datasets, AnExchangeThatIsRefusedChangesNothing) {
  const auto dataset = made("InMemoryDataset");
  dataset->set_side_by_side(2);
  EXPECT_THROW(dataset->global_shuffle(1, 0, 2, {.folder = path("exchange"), .meet = [] {}}),
               UsageError);
  dataset->load_into_memory();
  EXPECT_EQ(dataset->get_memory_data_size(), kRecords);
}

TEST_F(Datasets, FileListsCanBeCompared) {
  const auto a = made("QueueDataset");
  const auto b = made("InMemoryDataset");
  EXPECT_EQ(a->filelist_hash(), b->filelist_hash());
  EXPECT_THAT(a->filelist(), SizeIs(4));
  b->set_filelist({path("part-1"), path("part-0")});
  EXPECT_NE(a->filelist_hash(), b->filelist_hash());
}

}  // namespace
}  // namespace fleet::fluid::data
