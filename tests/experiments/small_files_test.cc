// fleet_experiments with files of little or nothing: a result or a message, never a signal.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

class SmallFiles : public ::testing::Test {
 protected:
  SmallFiles() {
    folder_ = ::testing::TempDir() + "small-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~SmallFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  static CommandResult run(const std::string& options) {
    return run_command(str_cat(binary_path("bin/fleet_experiments"), " --seeds 1 --length 0.001 ",
                               options, " elastic"));
  }
  // The tool refuses, and says what in the file.
  static void expect_refused(const std::string& options, const std::string& why) {
    const CommandResult result = run(options);
    EXPECT_TRUE(result.code == 1 || result.code == 2) << options << " " << result.code;
    EXPECT_NE(result.output.find(why), std::string::npos) << options << "\n" << result.output;
  }

  std::string folder_;
};

TEST_F(SmallFiles, OfATableAreRefused) {
  const std::string columns = "a,b,class\n";
  for (const std::string& bytes :
       {std::string(), std::string("\n"), columns, columns + "1,2,x\n"}) {
    for (const char* rows : {"", " --test_rows 1", " --test_rows 0", " --test_rows -5"}) {
      expect_refused(str_cat("--csv ", write("few.csv", bytes), rows), "few.csv");
    }
  }
  const std::string two = write("two.csv", columns + "1,2,x\n2,3,y\n");
  for (const char* rows : {"", " --test_rows 2", " --test_rows 0", " --test_rows -5"}) {
    expect_refused(str_cat("--csv ", two, rows), "the test rows must leave rows to train on");
  }
  expect_refused(str_cat("--test_rows 1 --csv ", write("label.csv", "class\nx\ny\nx\n")),
                 "there is nothing to tell classes by");
}

TEST_F(SmallFiles, OfATableThatCanBeTrainedOnAreNoSignal) {
  const std::string columns = "a,b,class\n";
  for (const char* rows : {"1,2,x\n2,3,y\n", "1,2,x\n1,2,x\n1,2,x\n", "p,q,x\np,q,y\n"}) {
    const CommandResult result =
        run(str_cat("--test_rows 1 --csv ", write("tiny.csv", columns + rows)));
    EXPECT_LE(result.code, 2) << rows << result.output;
  }
}

std::string idx(const std::string& dims, const std::string& bytes) {
  std::string file("\0\0\x08", 3);
  file += static_cast<char>(dims.size());
  for (const char dim : dims) file += std::string("\0\0\0", 3) + dim;
  return file + bytes;
}

TEST_F(SmallFiles, OfImagesAreRefused) {
  const std::string labels = write("labels", idx({3}, {0, 1, 0}));
  const auto refused = [&](const std::string& images, const std::string& marks,
                           const std::string& why) {
    expect_refused(str_cat("--images ", write("images", images), " --labels ", marks), why);
  };
  refused(idx({0, 2, 2}, ""), write("none", idx({0}, "")), "images");
  refused(idx({3, 0, 2}, ""), labels, "images");
  refused(idx({3, 1, 1}, {1, 2, 3}), labels, "the test rows must leave rows to train on");
  refused(idx({1, 1, 1}, {1}), write("one", idx({1}, {1})), "images");
  refused("", labels, "images");
}

TEST_F(SmallFiles, OfDigitsAreRefused) {
  for (const std::string& bytes : {std::string(), std::string("1,2,3\n"), std::string("7\n")}) {
    write("digits.csv.gz", bytes);
    write("order_1234.txt", "0\n");
    expect_refused(str_cat("--digits ", folder_), "digits.csv.gz");
  }
}

}  // namespace
}  // namespace fleet::testing
