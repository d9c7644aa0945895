// A table's file is the table as it was when it was asked for, whatever updates do meanwhile, and
// takes no more memory than what they change.
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <mutex>
#include <random>
#include <sys/resource.h>
#include <thread>

#include "base/error.h"
#include "fluid/io/table_files.h"
#include "strategies/parameter_server/server/checkpoint/table_saves.h"

namespace fleet::strategies {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Rows = std::vector<int64_t>;

constexpr int64_t kRows = 100;
constexpr int64_t kWidth = 4;
constexpr size_t kRowBytes = kWidth * sizeof(float);
constexpr size_t kPieceRows = 8;
// 13 pieces of rows, 7 of row numbers.
constexpr TableCheckpoint::Limits kLimits = {.piece_bytes = kPieceRows * kRowBytes,
                                             .kept_bytes = size_t{1} << 20};

// A table whose updates add to rows, or to all of it, and the folder that its files go to.
class TableCheckpoints : public ::testing::Test {
 protected:
  TableCheckpoints() : shard_(make_shard()) {
    folder_ = ::testing::TempDir() + "checkpoints-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~TableCheckpoints() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  StateShard make_shard() {
    std::vector<float> values(kRows * kWidth);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    scope_.var("table").emplace<fluid::Tensor>(fluid::Tensor::from(values, {kRows, kWidth}));
    scope_.var("gradient");
    return {StateShardSpec{.value = "table",
                           .gradient = "gradient",
                           .state = {},
                           .changes = {ValueChange::kNamedRows}},
            scope_, [this](const StepUpdate&) { update(); }};
  }
  void update() {
    if (in_update) in_update();
    float* values = scope_.tensor("table").data<float>();
    const auto* sparse = std::get_if<fluid::SelectedRows>(&shard_.gradient());
    for (int64_t row = 0; row < kRows; ++row) {
      const bool named = sparse == nullptr || std::ranges::count(sparse->rows, row) > 0;
      for (int64_t i = 0; named && i < kWidth; ++i) values[row * kWidth + i] += 1000;
    }
  }
  void change(Rows rows) {
    shard_.gradient() = fluid::SelectedRows{.rows = std::move(rows), .height = kRows, .value = {}};
    shard_.apply({++step_, 1});
  }
  void change_all() {
    shard_.gradient() = fluid::Tensor::zeros(fluid::DType::kFloat32, {kRows, kWidth});
    shard_.apply({++step_, 1});
  }

  static ParameterEntry entry() {
    return {.name = "table",
            .shape = {kRows, kWidth},
            .origin = "table",
            .origin_shape = {kRows, kWidth}};
  }
  std::shared_ptr<TableCheckpoint> make(const std::string& name,
                                        TableCheckpoint::Limits limits = kLimits) const {
    const fs::path folder = fs::path(folder_) / name;
    return std::make_shared<TableCheckpoint>(
        entry(), [folder] { return folder / "table_0"; }, limits);
  }
  std::shared_ptr<TableCheckpoint> show(const std::string& name,
                                        TableCheckpoint::Limits limits = kLimits) {
    auto file = make(name, limits);
    shard_.show(file);
    return file;
  }
  std::vector<float> table() const {
    const auto values = scope_.tensor("table").values<float>();
    return {values.begin(), values.end()};
  }
  std::vector<float> saved(const std::string& name) const {
    const fluid::Tensor rows =
        fluid::io::load_table_rows(fs::path(folder_) / name, "table", 0, 1, kRows);
    return {rows.values<float>().begin(), rows.values<float>().end()};
  }
  static int finish(TableCheckpoint& file) {
    int pieces = 1;
    while (file.write_piece()) ++pieces;
    EXPECT_TRUE(file.outcome().ok()) << file.outcome().to_string();
    return pieces;
  }
  ptrdiff_t files() const {
    const auto all = fs::recursive_directory_iterator(folder_);
    return std::count_if(begin(all), end(all), [](const auto& e) { return e.is_regular_file(); });
  }

  std::function<void()> in_update;
  std::string folder_;
  fluid::Scope scope_;
  StateShard shard_;
  uint64_t step_ = 0;
};

TEST_F(TableCheckpoints, AreTheTableAsItWasThoughRowsChangeMeanwhile) {
  change({1, 2});
  const std::vector<float> expected = table();
  const std::byte* memory = scope_.tensor("table").raw();
  const auto file = show("model");
  change({0, 50, 99, 50});
  int64_t row = 0;
  int pieces = 1;
  for (; file->write_piece(); ++pieces) {
    row = (row + 37) % kRows;
    change({row, (row + 1) % kRows, 99});
  }
  EXPECT_EQ(pieces, 7 - 1 + 13);
  EXPECT_TRUE(file->outcome().ok());
  EXPECT_EQ(saved("model"), expected);
  EXPECT_NE(table(), expected);
  EXPECT_EQ(scope_.tensor("table").raw(), memory) << "the table was copied";
}

TEST_F(TableCheckpoints, KeepOnlyRowsThatChangeAndAreNotWritten) {
  const auto file = show("model");
  EXPECT_EQ(file->held_bytes(), 0U);
  change({17});
  const size_t one = file->held_bytes();
  EXPECT_GE(one, kRowBytes);
  EXPECT_LT(one, 4 * kRowBytes);
  change({17});
  EXPECT_EQ(file->held_bytes(), one) << "a row is kept twice";
  change({90, 91, 92});
  EXPECT_GT(file->held_bytes(), one);
  while (file->held_bytes() < kLimits.piece_bytes) ASSERT_TRUE(file->write_piece());
  const size_t written_one = file->held_bytes();
  change({0, 1, 2, 3});
  EXPECT_EQ(file->held_bytes(), written_one) << "a row is kept that the file has";
  finish(*file);
  EXPECT_LE(file->held_bytes(), kLimits.piece_bytes);
}

// More than may be kept is written by the update.
TEST_F(TableCheckpoints, KeepNoMoreThanTheyMay) {
  const std::vector<float> expected = table();
  constexpr size_t kKept = 20 * kRowBytes;
  constexpr size_t kMost = kKept + 3 * kPieceRows * kRowBytes;
  const TableCheckpoint::Limits limits = {.piece_bytes = kLimits.piece_bytes, .kept_bytes = kKept};
  const auto rows = show("rows", limits);
  const auto all = show("all", limits);
  for (int64_t row = kRows - 1; row >= 0; --row) {
    change({row});
    EXPECT_LE(rows->held_bytes(), kMost);
  }
  change_all();
  EXPECT_LE(all->held_bytes(), kMost);
  finish(*rows);
  finish(*all);
  EXPECT_EQ(saved("rows"), expected);
  EXPECT_EQ(saved("all"), expected);
}

TEST_F(TableCheckpoints, OfTablesOfWhichAllChangesHaveWhatWasThere) {
  const std::vector<float> expected = table();
  const auto file = show("model");
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(file->write_piece());
  change_all();
  change_all();
  finish(*file);
  EXPECT_EQ(saved("model"), expected);
}

TEST_F(TableCheckpoints, BegunAtSeveralVersionsEachHaveTheirOwn) {
  const std::vector<float> first = table();
  const auto one = show("one");
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(one->write_piece());
  change({5, 30, 60});
  const std::vector<float> second = table();
  const auto two = show("two");
  change({6, 30, 61});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(two->write_piece());
  change_all();
  const std::vector<float> third = table();
  const auto three = show("three");
  change_all();
  finish(*two);
  finish(*three);
  finish(*one);
  EXPECT_EQ(saved("one"), first);
  EXPECT_EQ(saved("two"), second);
  EXPECT_EQ(saved("three"), third);
}

// A reader that holds a version has the next update go on elsewhere, and later there again.
TEST_F(TableCheckpoints, FollowATableThatMoves) {
  const std::vector<float> expected = table();
  const auto file = show("model");
  for (int i = 0; i < 8; ++i) {
    const fluid::Tensor held = shard_.read();
    const std::byte* before = scope_.tensor("table").raw();
    change({i, 40 + i, 80 + i});
    EXPECT_NE(scope_.tensor("table").raw(), before);
    ASSERT_TRUE(file->write_piece());
  }
  std::ranges::fill(std::span(shard_.writable().data<float>(), kRows * kWidth), -1.0F);
  finish(*file);
  EXPECT_EQ(saved("model"), expected);
}

TEST_F(TableCheckpoints, ThatNobodyWaitsForLeaveNothing) {
  auto file = show("model");
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(file->write_piece());
  change({60});
  file->drop();
  change({61});
  EXPECT_FALSE(file->write_piece());
  EXPECT_FALSE(file->outcome().ok());
  EXPECT_LE(file->held_bytes(), kLimits.piece_bytes);
  file.reset();
  change({62});
  EXPECT_EQ(files(), 0);
}

TEST_F(TableCheckpoints, ThatCannotBeWrittenSayWhyAndUpdatesGoOn) {
  const auto file = std::make_shared<TableCheckpoint>(
      entry(), []() -> fs::path { throw std::runtime_error("no such place"); },
      TableCheckpoint::Limits{.piece_bytes = 64, .kept_bytes = 64});
  shard_.show(file);
  change_all();
  EXPECT_FALSE(file->write_piece());
  EXPECT_THAT(file->outcome().to_string(), HasSubstr("no such place"));
  change({1});
}

TEST_F(TableCheckpoints, OfAFullDiskLeaveTheOldFile) {
  const std::vector<float> old = table();
  finish(*show("model"));
  change_all();
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 1200;  // row numbers and some rows
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  auto file = show("model");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  while (file->write_piece()) change({99});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, ignored);
  EXPECT_THAT(file->outcome().to_string(), HasSubstr("File too large"));
  file.reset();
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(saved("model"), old);
}

// Rows 1, 3, … of a table of 2 * kRows - 3 rows: the last two lie behind it.
TEST_F(TableCheckpoints, HaveTheRowsOfTheWholeTableOnly) {
  ParameterEntry every_second = entry();
  every_second.origin_shape = {2 * kRows - 3, kWidth};
  every_second.offset = kWidth;
  every_second.row_stride = 2;
  const fs::path path = fs::path(folder_) / "table_0";
  const auto file = std::make_shared<TableCheckpoint>(
      every_second, [path] { return path; }, kLimits);
  shard_.show(file);
  std::vector<float> expected = table();
  change({kRows - 1, kRows - 2, kRows - 3});
  finish(*file);
  const fluid::Tensor rows = fluid::io::load_table_rows(folder_, "table", 1, 2, kRows);
  std::fill(expected.end() - 2 * kWidth, expected.end(), 0.0F);
  EXPECT_TRUE(std::ranges::equal(rows.values<float>(), expected));
  fluid::SelectedRows same{.rows = {}, .height = 2 * kRows - 3, .value = rows.rows(0, kRows - 2)};
  for (int64_t i = 0; i < kRows - 2; ++i) same.rows.push_back(1 + 2 * i);
  fluid::io::save_table_rows(fs::path(folder_) / "at_once", same);
  EXPECT_EQ(fluid::read_whole_file(path, 1 << 20),
            fluid::read_whole_file(fs::path(folder_) / "at_once", 1 << 20));
}

// ---- updates in another thread

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST_F(TableCheckpoints, AskedForInTheMiddleOfAnUpdateHaveWhatItMakes) {
  std::vector<float> expected = table();
  std::ranges::for_each(std::span(expected).first(2 * kWidth), [](float& v) { v += 1000; });
  Gate begun;
  Gate go_on;
  in_update = [&] {
    scope_.tensor("table").data<float>()[0] += 1000;  // half of row 0
    begun.open();
    go_on.wait();
    scope_.tensor("table").data<float>()[0] -= 1000;
  };
  std::thread updates([this] { change({0, 1}); });
  begun.wait();
  const auto file = show("model");
  std::thread writes([&file] { finish(*file); });
  go_on.open();
  updates.join();
  writes.join();
  EXPECT_EQ(saved("model"), expected);
}

TEST_F(TableCheckpoints, AskedForInTheMiddleOfAnUpdateThatFailsAreNotThere) {
  Gate begun;
  Gate go_on;
  in_update = [&] {
    begun.open();
    go_on.wait();
    throw std::runtime_error("broken");
  };
  std::thread updates([this] { EXPECT_THROW(change({0}), std::runtime_error); });
  begun.wait();
  const auto file = show("model");
  go_on.open();
  updates.join();
  EXPECT_FALSE(file->write_piece());
  EXPECT_THAT(file->outcome().to_string(), HasSubstr("an update failed"));
  EXPECT_EQ(files(), 0);
}

TEST_F(TableCheckpoints, AreRightWhereAnotherThreadUpdates) {
  std::mt19937 random(7);
  for (int run = 0; run < 20; ++run) {
    const std::vector<float> expected = table();
    const TableCheckpoint::Limits limits = {.piece_bytes = kLimits.piece_bytes,
                                            .kept_bytes = run % 2 == 0 ? size_t{1} << 20 : 200};
    const auto file = show("model", limits);
    std::thread writes([&file] { finish(*file); });
    for (int i = 0; i < 30; ++i) {
      Rows rows(random() % 8);
      for (int64_t& row : rows) row = static_cast<int64_t>(random() % kRows);
      if (random() % 16 == 0) {
        change_all();
      } else {
        change(rows);
      }
    }
    writes.join();
    EXPECT_EQ(saved("model"), expected) << run;
  }
}

// ---- turns

struct Turn {
  std::function<void()> work;
  std::function<void()> done;
};

struct Turns {
  TableSaves::Run run() {
    return [this](std::function<void()> work, std::function<void()> done) {
      waiting.push_back({std::move(work), std::move(done)});
    };
  }
  void take() {
    const Turn turn = std::move(waiting.front());
    waiting.pop_front();
    turn.work();
    turn.done();
  }
  std::deque<Turn> waiting;
};

TEST_F(TableCheckpoints, TakeTurns) {
  Turns turns;
  TableSaves saves(turns.run());
  std::vector<std::string> there;
  saves.begin(1, show("one"), [&there](const Status& outcome) {
    EXPECT_TRUE(outcome.ok());
    there.push_back("one");
  });
  saves.begin(2, show("two"), [&there](const Status& outcome) {
    EXPECT_TRUE(outcome.ok());
    there.push_back("two");
  });
  const std::vector<float> expected = table();
  int count = 0;
  for (; !turns.waiting.empty(); ++count) {
    ASSERT_LE(turns.waiting.size(), 2U);
    turns.take();
    change({count % kRows, kRows - 1});
  }
  EXPECT_EQ(count, 2 * (7 - 1 + 13));
  EXPECT_THAT(there, ::testing::ElementsAre("one", "two"));
  EXPECT_EQ(saved("one"), expected);
  EXPECT_EQ(saved("two"), expected);
}

TEST_F(TableCheckpoints, OfALostSessionEndInTheMiddle) {
  Turns turns;
  TableSaves saves(turns.run());
  int finished = 0;
  bool lost_ok = true;
  saves.begin(1, show("lost"), [&](const Status& outcome) {
    ++finished;
    lost_ok = outcome.ok();
  });
  saves.begin(2, show("kept"), [&](const Status& outcome) {
    ++finished;
    EXPECT_TRUE(outcome.ok());
  });
  for (int i = 0; i < 20; ++i) turns.take();
  saves.drop_session(1);
  while (!turns.waiting.empty()) turns.take();
  EXPECT_EQ(finished, 2);
  EXPECT_FALSE(lost_ok);
  EXPECT_EQ(files(), 1);
  EXPECT_TRUE(fs::exists(fs::path(folder_) / "kept" / "table_0"));
}

TEST_F(TableCheckpoints, AreWrittenWholeWhereThereAreNoTurns) {
  TableSaves saves({});
  bool there = false;
  saves.begin(1, show("model"), [&there](const Status& outcome) { there = outcome.ok(); });
  EXPECT_TRUE(there);
  EXPECT_EQ(saved("model"), table());
}

}  // namespace
}  // namespace fleet::strategies
