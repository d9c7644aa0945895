// Every reader of files meets files of nothing, of little, and damaged ones: a result or a message.
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <random>

#include "base/strings.h"
#include "fluid/data/files.h"
#include "fluid/io/paddle_tensor.h"
#include "fluid/io/safetensors.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"
#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/fluid/io/temporary_directory.h"
#include "tests/fuzz/file_readers.h"

namespace fleet::fluid {
namespace {

using fleet::testing::read_in_every_format;
using testing::TemporaryDirectory;

using Bytes = std::vector<std::byte>;

Bytes bytes_of(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::string idx(const std::string& dims, const std::string& elements) {
  std::string file("\0\0\x08", 3);
  file += static_cast<char>(dims.size());
  for (const char dim : dims) file += std::string("\0\0\0", 3) + dim;
  return file + elements;
}

std::string npy(const Tensor& tensor) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "t.npy";
  data::save_npy(tensor, path);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Program small_program() {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  layers::mean(layers::fc(layers::data("x", {2}), 1));
  return main;
}

Tensor sequences(const std::vector<int64_t>& offsets) {
  Tensor tensor(DType::kFloat32, {offsets.empty() ? 0 : offsets.back(), 1});
  std::fill_n(tensor.data<float>(), tensor.numel(), 1.0F);
  tensor.set_lod({offsets});
  return tensor;
}

Bytes paddle(const Tensor& tensor) {
  Bytes bytes;
  encode_paddle(tensor, bytes);
  return bytes;
}

std::string manifest_of_a_checkpoint() {
  const TemporaryDirectory directory;
  testing::write_checkpoint(directory.path(), 1, {{"w", Tensor::scalar(1.0F)}});
  return testing::text_of(directory.path() / io::kCheckpointManifest);
}

// Small whole files of every format, of no rows, one row, one column, and a few.
std::vector<Bytes> small_files() {
  std::vector<Bytes> files;
  for (const char* text : {"",
                           "\n",
                           "\r\n",
                           " ",
                           ",",
                           "\"\"",
                           "\"\"\n\"\"\n",
                           "\"",
                           "\"a",
                           "a",
                           "a\n",
                           "a\n1",
                           "a\n\"\"\n1\n",
                           "a,b\n",
                           "a,b\n1,2",
                           "a,b\n1,2\n3,4\n5,6\n7,8\n",
                           "a;b\n;\n",
                           "a\tb\n1\t\n",
                           "1\n",
                           "{}",
                           "[]",
                           "null",
                           "\x1f\x8b",
                           "\x93NUMPY"}) {
    files.push_back(bytes_of(text));
  }
  for (const int rows : {0, 1, 4}) {
    const auto n = static_cast<char>(rows);
    files.push_back(bytes_of(idx({n}, std::string(static_cast<size_t>(rows), '\1'))));
    files.push_back(bytes_of(idx({n, 2}, std::string(static_cast<size_t>(2 * rows), '\1'))));
    const Tensor tensor = Tensor::from(std::vector<float>(static_cast<size_t>(rows), 1), {rows, 1});
    files.push_back(bytes_of(npy(tensor)));
    files.push_back(encode_safetensors({{"w", tensor}}));
    files.push_back(paddle(tensor));
  }
  files.push_back(bytes_of(idx({0, 0}, "")));
  files.push_back(bytes_of(idx({3, 0}, "")));
  files.push_back(bytes_of(npy(Tensor(DType::kFloat32, {3, 0}))));
  files.push_back(encode_safetensors({}));
  files.push_back(paddle(sequences({0})));
  files.push_back(paddle(sequences({0, 0, 2})));
  files.push_back(Program().to_bytes());
  files.push_back(bytes_of(Program().to_json()));
  files.push_back(small_program().to_bytes());
  files.push_back(bytes_of(small_program().to_json()));
  files.push_back(bytes_of(manifest_of_a_checkpoint()));
  return files;
}

TEST(EveryReader, TakesOrRefusesSmallFiles) {
  const TemporaryDirectory directory;
  int taken = 0;
  for (const Bytes& file : small_files()) {
    SCOPED_TRACE(str_cat(file.size(), " bytes"));
    taken += read_in_every_format(file, directory.path());
  }
  EXPECT_GT(taken, 40);
}

TEST(EveryReader, TakesOrRefusesCutAndDamagedFiles) {
  const TemporaryDirectory directory;
  std::mt19937 random(15);
  constexpr size_t kCuts = 16;
  constexpr int kDamages = 4;
  for (const Bytes& file : small_files()) {
    SCOPED_TRACE(str_cat(file.size(), " bytes"));
    const size_t step = file.size() / kCuts + 1;
    for (size_t end = 0; end < file.size(); end += step) {
      read_in_every_format(std::span(file).first(end), directory.path());
    }
    for (int i = 0; i < kDamages && !file.empty(); ++i) {
      Bytes damaged = file;
      for (unsigned n = 1 + random() % 3; n > 0; --n) {
        damaged[random() % damaged.size()] = static_cast<std::byte>(random() % 256);
      }
      read_in_every_format(damaged, directory.path());
    }
  }
}

}  // namespace
}  // namespace fleet::fluid
