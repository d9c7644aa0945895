// The quick start as its users run it: real processes, real files.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {

inline const std::string kBin = fleet::testing::binary_path("bin/");

class QuickStart : public ::testing::Test {
 protected:
  QuickStart() {
    folder_ = ::testing::TempDir() + "quick-start-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    // Root may run mpirun; nothing else of the environment names a role.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~QuickStart() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  static std::string local() { return kBin + "local_trainer"; }
  static std::string trainer() { return kBin + "distributed_train"; }
  std::string servers(int workers, int server_num) const {
    return str_cat(kBin, "launch_ps --worker_num ", workers, " --server_num ", server_num,
                   " --log_dir ", path("logs"), " ", trainer());
  }
  std::string collective(int ranks, const std::string& program = "distributed_train") const {
    return str_cat(kBin, "launch --nproc_per_node ", ranks, " --log_dir ", path("logs"), " ", kBin,
                   program);
  }

  // Trains and returns the bytes of the parameter file.
  std::string parameters(const std::string& command, const std::string& flags) {
    const std::string model = path("model");
    std::filesystem::remove_all(model);
    const auto result = run_command(command + " " + flags + " --model_dir " + model, 120);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.output << logs();
    return read(model + "/params.safetensors");
  }

  double accuracy(const std::string& command, int seed) {
    const std::string metrics = path("metrics.json");
    const auto result =
        run_command(str_cat(command, " --seed ", seed, " --metrics_file ", metrics), 120);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.output << logs();
    if (result.code != 0) return 0;
    return nlohmann::json::parse(read(metrics)).at("accuracy").get<double>();
  }

  void expect_accuracy_for_20_seeds(const std::string& command) {
    std::vector<double> found;
    for (int seed = 1; seed <= 20; ++seed) found.push_back(accuracy(command, seed));
    const auto [low, high] = std::minmax_element(found.begin(), found.end());
    std::cout << "test accuracy over 20 seeds: " << 100 * *low << " to " << 100 * *high << " %\n";
    EXPECT_GE(*low, 0.96);
  }

  std::string logs() const {
    std::string all;
    if (!std::filesystem::exists(path("logs"))) return all;
    for (const auto& file : std::filesystem::directory_iterator(path("logs"))) {
      all += "\n" + file.path().filename().string() + ":\n" + read(file.path().string());
    }
    return all;
  }

  static std::string read(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  std::string folder_;
};

}  // namespace fleet::testing
