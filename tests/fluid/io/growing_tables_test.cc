#include "fluid/io/growing_tables.h"

#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "fluid/io/checkpoint.h"
#include "fluid/io/checkpoint_files.h"
#include "fluid/io/inference_model.h"
#include "fluid/io/persistables.h"
#include "fluid/io/table_files.h"
#include "fluid/layers/sparse_embedding.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid::io {
namespace {

using fluid::testing::TemporaryDirectory;
using tables::GrowingTable;

constexpr const char* kTable = "ctr/emb";  // a name that is no name of a file

// The system's, with a look at what happens while a file gets its name.
class WatchedFiles final : public FileSystem {
 public:
  explicit WatchedFiles(std::function<void()> at_rename) : at_rename_(std::move(at_rename)) {}
  std::error_code create_folder(const Path& folder) override { return disk_.create_folder(folder); }
  std::unique_ptr<OutputFile> create(const Path& beginning, std::error_code& error) override {
    return disk_.create(beginning, error);
  }
  std::unique_ptr<InputFile> open(const Path& file, std::error_code& error) override {
    return disk_.open(file, error);
  }
  std::error_code rename(const Path& from, const Path& to) override {
    at_rename_();
    return disk_.rename(from, to);
  }
  std::error_code exchange(const Path& a, const Path& b) override { return disk_.exchange(a, b); }
  std::error_code remove(const Path& file) override { return disk_.remove(file); }
  std::error_code remove_all(const Path& folder) override { return disk_.remove_all(folder); }
  std::error_code sync_folder(const Path& folder) override { return disk_.sync_folder(folder); }
  bool exists(const Path& path) override { return disk_.exists(path); }
  std::vector<Path> folders_in(const Path& folder) override { return disk_.folders_in(folder); }

 private:
  FileSystem& disk_ = system_files();
  const std::function<void()> at_rename_;
};

class SavedGrowingTables : public NetFixture {
 protected:
  SavedGrowingTables() {
    const Variable ids = layers::data("ids", {1}, DType::kInt64);
    rows_ = layers::sparse_embedding(ids, 3, {.param_attr = {.name = kTable}, .deltas = true});
    out_ = layers::fc(rows_, 1);
    loss_ = layers::mean(out_);
    test_ = main_.clone(true);
    optimizer::Adam({.learning_rate = 0.1}).minimize(loss_);
  }

  static Feed feed(uint64_t step) {
    std::vector<int64_t> ids(20);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int64_t>((step * 7 + i) * 0x9e3779b97f4a7c15ULL);
    }
    return {{"ids", Tensor::from(ids, {20, 1})}};
  }
  void train(Executor& executor, uint64_t begin, uint64_t end) {
    for (uint64_t step = begin; step < end; ++step) executor.run(main_, feed(step));
  }

  using Contents = std::map<uint64_t, std::vector<float>>;
  static Contents contents(const Executor& executor) {
    Contents rows;
    growing_table(const_cast<Executor&>(executor).scope(), kTable)
        ->reading([&rows](const GrowingTable& table) {
          table.scan(0, tables::kBuckets, [&rows](const tables::RowView& row) {
            rows[row.key].assign(row.values.begin(), row.values.end());
            rows[row.key].insert(rows[row.key].end(), row.states.begin(), row.states.end());
          });
        });
    return rows;
  }
  static std::vector<std::filesystem::path> table_files(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> found;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() == ".table") found.push_back(file.path());
    }
    return found;
  }

  Program test_;
  Variable rows_;
  Variable out_;
  Variable loss_;
};

TEST_F(SavedGrowingTables, TrainOnBitForBit) {
  const TemporaryDirectory folder;
  Executor first;
  first.run(startup_);
  train(first, 0, 3);
  io::save_persistables(first, folder.path(), main_);
  Executor second;
  second.run(startup_);
  train(second, 5, 6);
  io::load_persistables(second, folder.path(), main_);
  EXPECT_EQ(contents(second), contents(first));
  train(first, 3, 5);
  train(second, 3, 5);
  EXPECT_EQ(contents(second), contents(first));
  EXPECT_EQ(second.run(main_, feed(9), {loss_})[0].item<float>(),
            first.run(main_, feed(9), {loss_})[0].item<float>());
}

TEST_F(SavedGrowingTables, AreLoadedWhereNoStartupProgramRan) {
  const TemporaryDirectory folder;
  Executor first;
  first.run(startup_);
  train(first, 0, 2);
  io::save_persistables(first, folder.path(), main_);
  Executor second;
  io::load_persistables(second, folder.path(), main_);
  const auto options = [](Executor& executor) {
    return growing_table(executor.scope(), kTable)->options();
  };
  EXPECT_EQ(options(second).seed, options(first).seed);
  EXPECT_EQ(options(second).states, options(first).states);
  EXPECT_EQ(options(second).initializer, options(first).initializer);
  train(first, 2, 4);
  train(second, 2, 4);
  EXPECT_EQ(contents(second), contents(first)) << "new rows start alike, too";
}

TEST_F(SavedGrowingTables, ASecondSaveTakesTheFirstOnesPlace) {
  const TemporaryDirectory folder;
  Executor executor;
  executor.run(startup_);
  train(executor, 0, 1);
  io::save_persistables(executor, folder.path(), main_);
  const auto before = table_files(folder.path());
  train(executor, 1, 2);
  io::save_persistables(executor, folder.path(), main_);
  ASSERT_EQ(table_files(folder.path()).size(), 1U);
  EXPECT_NE(table_files(folder.path()), before);
  Executor second;
  io::load_persistables(second, folder.path(), main_);
  EXPECT_EQ(contents(second), contents(executor));
}

TEST_F(SavedGrowingTables, DamageAndOtherProgramsChangeNothing) {
  const TemporaryDirectory folder;
  Executor executor;
  executor.run(startup_);
  train(executor, 0, 1);
  io::save_persistables(executor, folder.path(), main_);
  train(executor, 1, 2);
  const Contents before = contents(executor);
  const auto refused = [&](const Program& program, ErrorCode code,
                           const std::vector<std::string>& texts) {
    expect_error([&] { io::load_persistables(executor, folder.path(), program); }, code, texts);
    EXPECT_EQ(contents(executor), before);
  };
  Program wider = main_;
  wider.global_block().edit_var(kTable).shape = Shape{-1, 4};
  refused(wider, ErrorCode::kShapeMismatch, {kTable, "width"});
  Program other = main_;
  VarDesc more = other.global_block().var(kTable);
  more.name = "other";
  other.global_block().add_var(more);
  refused(other, ErrorCode::kInvalidProgram, {"other"});

  const std::filesystem::path file = table_files(folder.path()).front();
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-80, std::ios::end);
    stream.put('x');
  }
  const auto unreadable = [&](ErrorCode code) {
    try {
      io::load_persistables(executor, folder.path(), main_);
      ADD_FAILURE() << "a damaged file was read";
    } catch (const ResourceError& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(file.filename().string()));
    }
    EXPECT_EQ(contents(executor), before);
  };
  unreadable(ErrorCode::kCorruptFile);
  std::filesystem::remove(file);
  unreadable(ErrorCode::kInput);
}

TEST_F(SavedGrowingTables, OtherStatesAreRefusedWithTheirNames) {
  const TemporaryDirectory folder;
  Executor executor;
  executor.run(startup_);
  io::save_persistables(executor, folder.path(), main_);
  Executor plain;
  {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const Variable ids = layers::data("ids", {1}, DType::kInt64);
    const Variable rows = layers::sparse_embedding(ids, 3, {.param_attr = {.name = kTable}});
    optimizer::Adagrad({.learning_rate = 0.1}).minimize(layers::mean(rows));
    plain.run(startup);
  }
  expect_error([&] { io::load_persistables(plain, folder.path(), main_); },
               ErrorCode::kInvalidArgument, {"moment1", ".table"});
}

TEST_F(SavedGrowingTables, InferenceReadsThemAndChangesNothing) {
  const TemporaryDirectory folder;
  Executor executor;
  executor.run(startup_);
  train(executor, 0, 3);
  save_inference_model(folder.path(), {"ids"}, {out_}, executor, main_);
  Executor other;
  const InferenceModel model = load_inference_model(folder.path(), other);
  const auto run = [&](Executor& in, const Program& program, uint64_t step) {
    const auto values = in.run(program, feed(step), {out_.name()})[0];
    const auto span = values.values<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  const uint64_t before = growing_table(other.scope(), kTable)->statistics().rows;
  for (const uint64_t step : {uint64_t{1}, uint64_t{50}}) {
    EXPECT_EQ(run(other, model.program, step), run(executor, test_, step));
  }
  EXPECT_EQ(growing_table(other.scope(), kTable)->statistics().rows, before);
  EXPECT_GT(before, 0U);
}

TEST_F(SavedGrowingTables, PaddlesFilesRefuseThem) {
  const TemporaryDirectory folder;
  Executor executor;
  executor.run(startup_);
  expect_error([&] { save_paddle_persistables(folder.path(), executor, main_); },
               ErrorCode::kNotSupported, {kTable});
}

TEST_F(SavedGrowingTables, DeltasBringAReaderUpToDate) {
  const TemporaryDirectory folder;
  Executor trainer;
  Executor reader;
  trainer.run(startup_);
  reader.run(startup_);
  const auto file = [&](int number) { return folder.path() / str_cat(number, ".delta"); };
  train(trainer, 0, 2);
  EXPECT_GT(save_table_delta(trainer.scope(), kTable, file(1)), 0U);
  train(trainer, 2, 3);
  growing_table(trainer.scope(), kTable)->alone([](GrowingTable& table) {
    return table.evict(std::vector<uint64_t>{0x9e3779b97f4a7c15ULL});
  });
  save_table_delta(trainer.scope(), kTable, file(2));
  expect_error([&] { read_table_delta(reader.scope(), kTable, file(2)); }, ErrorCode::kPrecondition,
               {"delta"});
  read_table_delta(reader.scope(), kTable, file(1));
  read_table_delta(reader.scope(), kTable, file(2));
  EXPECT_EQ(contents(reader), contents(trainer));
}

TEST_F(SavedGrowingTables, ATableIsFreeWhileTheDiskWorks) {
  const TemporaryDirectory folder;
  Executor executor;
  executor.run(startup_);
  train(executor, 0, 3);
  const auto table = growing_table(executor.scope(), kTable);
  int seen = 0;
  WatchedFiles files(
      [&] { std::jthread([&] { seen += table->statistics_now().has_value() ? 1 : 0; }); });
  TableSave(table, folder.path() / "whole.table", {}, files).finish();
  EXPECT_EQ(seen, 1);
  save_table_delta(executor.scope(), kTable, folder.path() / "1.delta", files);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(table->reading([](const GrowingTable& rows) { return rows.delta_number(); }), 1U);
}

// Two servers' parts of a checkpoint.
TEST_F(SavedGrowingTables, CheckpointsHaveThemInParts) {
  const TemporaryDirectory directory;
  const std::filesystem::path folder = directory.path() / "checkpoint";
  Executor executor;
  executor.run(startup_);
  train(executor, 0, 3);
  const auto table = growing_table(executor.scope(), kTable);
  const auto options = table->options();
  const Contents before = contents(executor);
  std::vector<CheckpointTables> parts(2);
  for (int part = 0; part < 2; ++part) {
    auto mine = std::make_shared<tables::SharedTable>(options);
    for (const auto& [key, floats] : before) {
      if (key % 2 != static_cast<uint64_t>(part)) continue;
      mine->alone([&](GrowingTable& rows) { rows.put(key, floats); });
    }
    const auto number = static_cast<uint32_t>(part);
    parts[number][kTable] =
        std::make_shared<TableSave>(mine, checkpoint_table_file(folder, kTable, part, 2),
                                    tables::TableSaveOptions{.part = number, .parts = 2});
    // What comes behind the moment is not in the file.
    mine->alone([](GrowingTable& rows) { return rows.evict_to(0, tables::RowRank::kNorm); });
    write_checkpoint_part(folder, part, 2, {}, system_files(), {}, parts[number]);
  }
  write_checkpoint_manifest(folder, {.step = 3}, 2);
  const auto reader = CheckpointReader::open(folder);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  const auto& files = reader.value().tables().at(kTable);
  ASSERT_EQ(files.size(), 2U);
  EXPECT_TRUE(reader.value().check_table(kTable).ok());
  EXPECT_EQ(reader.value().check_table("other").code(), ErrorCode::kUnknownName);
  executor.scope().var(kTable) = tables::table_value(load_growing_table(options, files));
  EXPECT_EQ(contents(executor), before);

  {
    std::fstream stream(files[1], std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-100, std::ios::end);
    stream.put('x');
  }
  EXPECT_EQ(reader.value().check_table(kTable).code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(CheckpointReader::find_damage(folder).size(), 1U);
  std::filesystem::resize_file(files[0], 50);
  const Status cut = CheckpointReader::open(folder).status();
  EXPECT_EQ(cut.code(), ErrorCode::kCorruptFile);
  EXPECT_THAT(cut.to_string(), ::testing::HasSubstr(files[0].filename().string()));
}

// What the save op of Paddle 1.8.5 wrote of rows 3, 7 and 2^40 of a table: [1, 2], [3, 4],
// [5, 6.5].
constexpr unsigned char kPaddleTable[] = {
    0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x06, 0x00, 0x00, 0x00, 0x08, 0x05, 0x10, 0x03,
    0x10, 0x02, 0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x40, 0x40,
    0x00, 0x00, 0x80, 0x40, 0x00, 0x00, 0xa0, 0x40, 0x00, 0x00, 0xd0, 0x40};

class PaddleTables : public NetFixture {
 protected:
  PaddleTables() {
    const Variable ids = layers::data("ids", {1}, DType::kInt64);
    loss_ = layers::mean(layers::sparse_embedding(ids, 2, {.param_attr = {.name = kTable}}));
    optimizer::Adagrad({.learning_rate = 0.1, .initial_accumulator_value = 0.5}).minimize(loss_);
    executor_.run(startup_);
    std::ofstream(file_, std::ios::binary)
        .write(reinterpret_cast<const char*>(kPaddleTable), sizeof kPaddleTable);
  }
  std::vector<float> row(uint64_t id) {
    std::vector<float> floats;
    growing_table(executor_.scope(), kTable)->reading([&](const GrowingTable& table) {
      table.scan(0, tables::kBuckets, [&](const tables::RowView& one) {
        if (one.key != id) return;
        floats.assign(one.values.begin(), one.values.end());
        floats.insert(floats.end(), one.states.begin(), one.states.end());
      });
    });
    return floats;
  }
  void train(int64_t id) { executor_.run(main_, {{"ids", Tensor::from<int64_t>({id}, {1, 1})}}); }

  const TemporaryDirectory folder_;
  const std::filesystem::path file_ = folder_.path() / "table";
  Variable loss_;
  Executor executor_;
};

TEST_F(PaddleTables, AreReadAndWrittenToTheByte) {
  EXPECT_EQ(load_paddle_table(executor_.scope(), kTable, std::vector{file_}), 3U);
  EXPECT_EQ(row(7), (std::vector<float>{3, 4, 0.5, 0.5})) << "states begin anew";
  const auto copy = folder_.path() / "copy";
  EXPECT_EQ(save_paddle_table(executor_.scope(), kTable, copy), 3U);
  std::ifstream stream(copy, std::ios::binary);
  const std::string written(std::istreambuf_iterator<char>(stream), {});
  EXPECT_EQ(written, std::string(reinterpret_cast<const char*>(kPaddleTable), sizeof kPaddleTable));
}

TEST_F(PaddleTables, AreReadOverWhatThereIs) {
  train(7);
  train(8);
  const std::vector<float> other = row(8);
  ASSERT_EQ(other.size(), 4U);
  load_paddle_table(executor_.scope(), kTable, std::vector{file_});
  EXPECT_EQ(row(7), (std::vector<float>{3, 4, 0.5, 0.5}));
  EXPECT_EQ(row(8), other);
}

TEST_F(PaddleTables, ThatDoNotFitAreRefusedWhole) {
  const auto damaged = folder_.path() / "damaged";
  std::filesystem::copy_file(file_, damaged);
  std::filesystem::resize_file(damaged, sizeof kPaddleTable - 1);
  const auto load = [this](const std::vector<std::filesystem::path>& files) {
    return [this, files] { load_paddle_table(executor_.scope(), kTable, files); };
  };
  expect_error(load({file_, damaged}), ErrorCode::kCorruptFile, {"damaged"});
  expect_error(load({folder_.path() / "none"}), ErrorCode::kInput, {"none"});
  EXPECT_TRUE(row(3).empty()) << "nothing was taken of the file that is whole";
  const auto wide = folder_.path() / "wide";
  save_table_rows(wide, {{1}, 2, Tensor::from<float>({1, 2, 3}, {1, 3})});
  expect_error(load({wide}), ErrorCode::kInvalidArgument, {"float32 rows of 2", "wide"});
  train(-1);
  expect_error([this] { save_paddle_table(executor_.scope(), kTable, folder_.path() / "x"); },
               ErrorCode::kInvalidArgument, {"2^63"});
}

}  // namespace
}  // namespace fleet::fluid::io
