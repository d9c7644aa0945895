#include "fluid/data/files.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;

class Files : public ::testing::Test {
 protected:
  Files() { std::filesystem::create_directories(folder_); }
  ~Files() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::filesystem::path write_gzip(const std::string& name, const std::string& bytes) const {
    const gzFile file = gzopen((folder_ / name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    return folder_ / name;
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("fleet-data-files-" + std::to_string(getpid()));
};

const std::string kIdx = {0, 0, 0x0B, 2, 0, 0, 0, 2, 0, 0, 0, 1, 1, 2, -1, -2};

TEST_F(Files, ReadsIdxPlainAndPacked) {
  std::string packed(ZSTD_compressBound(kIdx.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), kIdx.data(), kIdx.size(), 3));
  for (const auto& path : {write("a", kIdx), write_gzip("b.gz", kIdx), write("c.zst", packed)}) {
    const Tensor tensor = load_idx(path);
    EXPECT_EQ(tensor.shape(), (Shape{2, 1}));
    EXPECT_THAT(tensor.values<int16_t>(), ElementsAre(0x0102, -2));
  }
}

TEST_F(Files, RefusesWhatIsNotAWholeIdxFile) {
  for (size_t size = 0; size < kIdx.size(); ++size) {
    EXPECT_THROW(load_idx(write("cut", kIdx.substr(0, size))), ResourceError) << size;
  }
  EXPECT_THROW(load_idx(write("long", kIdx + "x")), ResourceError);
  std::string huge = kIdx;
  for (size_t i = 4; i < 12; ++i) huge[i] = '\xff';
  EXPECT_THROW(load_idx(write("huge", huge)), ResourceError);
  std::string type = kIdx;
  type[2] = 0x0A;
  EXPECT_THROW(load_idx(write("type", type)), ResourceError);
}

TEST_F(Files, RefusesACutGzipFile) {
  const auto path = write_gzip("whole.gz", std::string(100000, 'x') + kIdx);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THROW(read_file(path), ResourceError);
  EXPECT_THROW(read_file(folder_ / "absent"), ResourceError);
  EXPECT_THROW(read_file(write("big", "12345"), 4), ResourceError);
}

TEST_F(Files, NpyComesBackAsItWas) {
  const auto path = folder_ / "a.npy";
  for (const Shape& shape : {Shape{6}, Shape{2, 3}, Shape{1, 0, 3}}) {
    Tensor tensor = Tensor::zeros(DType::kFloat32, shape);
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = 0.5f * float(i);
    save_npy(tensor, path);
    const Tensor back = load_npy(path);
    EXPECT_EQ(back.shape(), shape);
    EXPECT_THAT(back.values<float>(), ::testing::ElementsAreArray(tensor.values<float>()));
  }
  const Tensor numbers = Tensor::from(std::vector<int64_t>{-1, 2}, {2, 1});
  save_npy(numbers, path);
  EXPECT_THAT(load_npy(path).values<int64_t>(), ElementsAre(-1, 2));
  EXPECT_EQ(std::filesystem::file_size(path) % 64, 16u);
  EXPECT_THROW(save_npy(Tensor(DType::kBFloat16, {1}), path), Error);
}

std::string npy(const std::string& header, const std::string& payload) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file.push_back(static_cast<char>(header.size()));
  file.push_back(0);
  return file + header + payload;
}

TEST_F(Files, ReadsNpyAsNumPyWritesIt) {
  const auto path =
      write("n.npy", npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n",
                         std::string("\x01\0\0\0\x02\0\0\0", 8)));
  EXPECT_THAT(load_npy(path).values<int32_t>(), ElementsAre(1, 2));
  const auto scalar =
      write("s.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "a"));
  EXPECT_EQ(load_npy(scalar).shape().rank(), 0);
}

TEST_F(Files, RefusesOtherNpyFiles) {
  const std::vector<std::string> wrong = {
      "",
      "\x93NUMPY",
      npy("{'descr': '>i4', 'fortran_order': False, 'shape': (1,)}", "abcd"),
      npy("{'descr': '<i4', 'fortran_order': True, 'shape': (1,)}", "abcd"),
      npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", "abcd"),
      npy("{'descr': '<i4', 'fortran_order': False, 'shape': (-1,)}", "abcd"),
      npy("{'descr': '<i4', 'fortran_order': False, 'shape': (9999999999,9999999999)}", "abcd"),
      npy("{'descr': '<i4', 'fortran_order': False, 'shape': (x,)}", "abcd"),
      npy("{'descr': 'O', 'fortran_order': False, 'shape': (1,)}", "abcd"),
      npy("{'descr': '<i4', 'fortran_order': False", "")};
  for (const std::string& bytes : wrong) {
    EXPECT_THROW(load_npy(write("wrong.npy", bytes)), Error) << bytes;
  }
}

}  // namespace
}  // namespace fleet::fluid::data
