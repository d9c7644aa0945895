// The click example as its users run it, on files whose best area under the curve is known.
#include <gmock/gmock.h>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class CtrDnn : public QuickStart {
 protected:
  void make(const std::string& flags) {
    const auto made =
        run_command(str_cat(kBin, "fleet-make-criteo ", flags, " ", path("clicks")), 120);
    ASSERT_EQ(made.code, 0) << made.output;
    best_ = Json::parse(read(path("clicks/report.json"))).at("test").at("best_auc").get<double>();
  }
  std::string program(const std::string& flags) const {
    return str_cat(kBin, "ctr_dnn --data_dir ", path("clicks"),
                   " --hidden 64,32 --table_rows 100003 --batch_size 200 ", flags);
  }
  std::string with_servers(const std::string& flags, int threads = 1) const {
    return str_cat("CPU_NUM=", threads, " ", kBin,
                   "launch_ps --worker_num 2 --server_num 2 --log_dir ", path("logs"), " ",
                   program(flags));
  }
  // What the run wrote of itself.
  Json run(const std::string& command) const {
    const std::string metrics = path("metrics.json");
    std::filesystem::remove(metrics);
    const auto result = run_command(str_cat(command, " --metrics_file ", metrics), 300);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.output << logs();
    return result.code == 0 ? Json::parse(read(metrics)) : Json{{"auc", 0.0}, {"last_loss", 0.0}};
  }
  void expect_good(const std::string& command) const {
    const double auc = run(command).at("auc");
    std::cout << command << ": AUC " << auc << ", best " << best_ << "\n";
    EXPECT_GT(auc, best_ - 0.02) << command;
    EXPECT_LT(auc, best_ + 0.005) << command;
  }

  double best_ = 0;
};

constexpr const char* kClicks =
    "--records 200000 --test_records 40000 --test_files 2 --ids 300 --seed 7 ";

TEST_F(CtrDnn, LearnsAlone) {
  make(kClicks);
  expect_good(program("--epochs 3 --threads 2"));
  expect_good(program("--epochs 3 --threads 2 --hogwild"));
  expect_good(program("--epochs 3 --threads 2 --table growing"));
}

TEST_F(CtrDnn, LearnsWithServersInStep) {
  make(kClicks);
  expect_good(with_servers("--epochs 3"));
  expect_good(with_servers("--epochs 3 --table distributed"));
  expect_good(with_servers("--epochs 3 --table growing"));
}

// Files of this size have nearly all of the 300 ids, which the slots share out among them, each at
// least one, and in each of 26 slots an empty cell.
TEST_F(CtrDnn, TheLauncherSaysWhatGrowingTablesHave) {
  make("--records 3000 --test_records 500 --test_files 2 --ids 300");
  const auto launch = [&](const std::string& flag) {
    const auto result =
        run_command(str_cat(kBin, "launch_ps --worker_num 2 --server_num 2 ", flag, " --log_dir ",
                            path("logs"), " ", program("--table growing")),
                    60);
    EXPECT_EQ(result.code, 0) << result.output << logs();
    return result.output;
  };
  EXPECT_THAT(launch("--progress 2>&1"), HasSubstr("table rows"));
  const std::string lines = launch("--json 2>/dev/null");
  const Json last = Json::parse(lines.substr(lines.find_last_of('\n', lines.size() - 2) + 1));
  double rows = 0;
  for (const Json& server : last.at("servers")) rows += server.at("table_rows").get<double>();
  EXPECT_GT(rows, 250);
  EXPECT_LE(rows, 300 + 26 + 26);
}

TEST_F(CtrDnn, ReportsShowCurvesAndTables) {
  make("--records 40000 --test_records 500 --test_files 2 --ids 300");
  const Json metrics = run(with_servers("--table growing --print_period 20"));
  EXPECT_GT(metrics.at("loss").size(), 2U);
  EXPECT_GT(metrics.at("tables").at("ids").at("rows").get<int>(), 250);
  const auto report = run_command(str_cat(kBin, "fleet_report ", path("metrics.json")), 60);
  EXPECT_EQ(report.code, 0) << report.output;
  for (const char* text : {"test AUC", "growing table", "ids", "admitted"}) {
    EXPECT_THAT(report.output, HasSubstr(text));
  }
}

TEST_F(CtrDnn, LearnsAsynchronously) {
  make(kClicks);
  expect_good(with_servers("--epochs 3 --strategy async"));
  // Four threads know less of each other, the less the busier the machine is.
  expect_good(with_servers("--epochs 4 --strategy async --threads 2 --table distributed", 2));
  expect_good(with_servers("--epochs 4 --strategy async --threads 2 --table growing", 2));
}

TEST_F(CtrDnn, LearnsHalfAsynchronously) {
  make(kClicks);
  expect_good(with_servers("--epochs 3 --strategy half_async --threads 2", 2));
  expect_good(with_servers("--epochs 3 --strategy half_async --table growing"));
}

TEST_F(CtrDnn, LearnsByDifferences) {
  make(kClicks);
  expect_good(with_servers("--epochs 3 --strategy geo"));
  expect_good(with_servers("--epochs 3 --strategy geo --threads 2", 2));
  expect_good(with_servers("--epochs 3 --strategy geo --table growing"));
  expect_good(with_servers("--epochs 3 --strategy easgd --threads 2 --table growing", 2));
}

// Threads that read make no difference in step, and packed files none at all.
TEST_F(CtrDnn, HasTheSameBitsInStepWithAnyNumberOfReaders) {
  make("--records 3000 --test_records 500 --test_files 2 --ids 300");
  std::filesystem::create_directories(path("models"));
  const auto model = [&](const std::string& name, const std::string& command) {
    const std::string folder = path("models/" + name);
    run(str_cat(command, " --model_dir ", folder));
    return read(folder + "/params.safetensors");
  };
  const std::string one = model("one", with_servers("--threads 1"));
  EXPECT_FALSE(one.empty());
  EXPECT_TRUE(model("two", with_servers("--threads 3")) == one);
  const std::string alone = model("alone", program("--threads 1"));
  EXPECT_TRUE(model("alone_too", program("--threads 3")) == alone);
  std::filesystem::remove_all(path("clicks"));
  make("--records 3000 --test_records 500 --test_files 2 --ids 300 --gzip");
  EXPECT_TRUE(model("packed", program("--threads 2")) == alone);
}

// Two workers that tested a half each tell what one tells that tests the same model on all.
TEST_F(CtrDnn, TheAreaUnderTheCurveIsThatOfAllWorkers) {
  make("--records 40000 --test_records 3001 --test_files 3 --ids 300");
  for (const std::string table : {"sliced", "distributed", "growing"}) {
    const std::string model = path("model-" + table);
    const std::string servers = str_cat("FLEET_SERVER_FOLDERS=", path(""), " ");
    const Json two =
        run(servers + with_servers(str_cat("--table ", table, " --model_dir ", model)));
    const std::string load = str_cat("--epochs 0 --init_from ", model);
    const Json one = run(program(table == "growing" ? load + " --table growing" : load));
    EXPECT_GT(two.at("auc"), 0.6);
    EXPECT_EQ(two.at("auc"), one.at("auc"));
  }
}

// The second worker reads no file: all that it has, it was given.
TEST_F(CtrDnn, WorkersGiveEachOtherRecords) {
  make(str_cat(kClicks, "--files 1"));
  const std::string shuffle = "--epochs 3 --shuffle_dir " + path("exchange");
  expect_good(with_servers(shuffle));
  EXPECT_TRUE(std::filesystem::is_empty(path("exchange")));
}

// One worker has more batches than the other, and has them in every epoch.
TEST_F(CtrDnn, EndsWhereWorkersHaveUnevenData) {
  make("--records 2000 --test_records 501 --test_files 2 --ids 300");
  std::ofstream(path("clicks/part-000"), std::ios::app) << read(path("clicks/part-001"));
  for (const std::string strategy : {"sync", "async", "half_async", "geo"}) {
    run(with_servers("--epochs 2 --strategy " + strategy));
    const bool left_out = logs().find("another worker has no batches left") != std::string::npos;
    EXPECT_EQ(left_out, strategy == "sync") << strategy;
  }
}

TEST_F(CtrDnn, StopsAtTooManyLinesThatCannotBeRead) {
  make("--records 2000 --test_records 500 --ids 300");
  std::ofstream broken(path("clicks/part-003"), std::ios::app);
  for (int i = 0; i < 101; ++i) broken << "no clicks\n";
  broken.close();
  for (const std::string& command : {program(""), with_servers("")}) {
    const auto result = run_command(command, 60);
    EXPECT_EQ(result.code, 1) << result.output;
    EXPECT_THAT(result.output + logs(), HasSubstr("part-003 line 501"));
  }
}

}  // namespace
}  // namespace fleet::testing
