#include "fluid/io/safetensors.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "tests/fluid/io/temporary_directory.h"

namespace fleet::fluid {
namespace {

using testing::TemporaryDirectory;

void write(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::remove(path);  // a file that is cut to nothing may be synced
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::byte> file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::vector<std::byte> bytes(sizeof length + header.size() + data);
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, header.data(), header.size());
  return bytes;
}

NamedTensors sample() {
  NamedTensors tensors;
  tensors["w"] = Tensor::from<float>({1, -2, 3, 4, 5, 6}, {2, 3});
  tensors["a"] = Tensor::from<int64_t>({7, -8}, {2});
  tensors["flags"] = Tensor::from<bool>({true, false, true}, {3});
  tensors["none"] = Tensor::from<double>({}, {0, 5});
  return tensors;
}

TEST(Safetensors, ComeBackAsTheyWere) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "deep" / "t.safetensors";
  write_safetensors(path, sample(), {{"kind", "test"}});
  const SafetensorsReader reader = SafetensorsReader::open(path).value();
  EXPECT_EQ(reader.metadata().at("kind"), "test");
  EXPECT_EQ(reader.entries().size(), 4u);
  for (const auto& [name, tensor] : sample()) {
    const Tensor got = reader.read(name).value();
    EXPECT_EQ(got.dtype(), tensor.dtype());
    EXPECT_EQ(got.shape(), tensor.shape());
    EXPECT_TRUE(got.bytes() == 0 || std::memcmp(got.raw(), tensor.raw(), got.bytes()) == 0);
  }
  EXPECT_EQ(reader.read("ww").status().code(), ErrorCode::kUnknownName);
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
    EXPECT_EQ(entry.path().filename(), "t.safetensors") << "a temporary file is left";
  }
}

TEST(Safetensors, EqualContentsGiveEqualBytes) {
  EXPECT_EQ(encode_safetensors(sample()), encode_safetensors(sample()));
}

TEST(Safetensors, RefusesWhatDoesNotFitTheFile) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "bad";
  const auto code = [&](const std::string& header, size_t data) {
    write(path, file_of(header, data));
    return SafetensorsReader::open(path).status().code();
  };
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  EXPECT_EQ(code(entry("F32", "[2]", "[0,8]"), 8), ErrorCode::kOk);
  EXPECT_EQ(code(entry("F32", "[0,4294967295]", "[0,0]"), 0), ErrorCode::kOk);
  const ErrorCode bad = ErrorCode::kCorruptFile;
  EXPECT_EQ(code(entry("F32", "[2]", "[0,8]"), 7), bad);
  EXPECT_EQ(code(entry("F32", "[3]", "[0,8]"), 8), bad);
  EXPECT_EQ(code(entry("F33", "[2]", "[0,8]"), 8), bad);
  EXPECT_EQ(code(entry("F32", "[2]", "[8,0]"), 8), bad);
  EXPECT_EQ(code(entry("F32", "[-2]", "[0,8]"), 8), bad);
  EXPECT_EQ(code(entry("F32", "[1.5]", "[0,8]"), 8), bad);
  EXPECT_EQ(code(entry("F32", "[4294967296,4294967296]", "[0,0]"), 0), bad);
  EXPECT_EQ(code(entry("F32", "[4294967295,4294967295,4294967295]", "[0,4]"), 4), bad);
  EXPECT_EQ(code(entry("F32", "[1,1,1,1,1,1,1,1,1,1]", "[0,4]"), 4), bad);
  EXPECT_EQ(code(entry("F32", "[2]", "[0,18446744073709551615]"), 8), bad);
  EXPECT_EQ(code(R"({"a":{},"a":{}})", 0), bad);
  EXPECT_EQ(code(R"({"a":[[[[[[[[1]]]]]]]]})", 0), bad);
  EXPECT_EQ(code(R"({"__metadata__":{"a":1}})", 0), bad);
  EXPECT_EQ(code("[]", 0), bad);
  EXPECT_EQ(code("{", 0), bad);
  EXPECT_EQ(code(std::string(5000, '['), 0), bad);
  write(path, std::vector<std::byte>(7));
  EXPECT_EQ(SafetensorsReader::open(path).status().code(), bad);
  write(path, std::vector<std::byte>(64, std::byte{0xff}));
  EXPECT_EQ(SafetensorsReader::open(path).status().code(), bad);
  EXPECT_EQ(SafetensorsReader::open(directory.path() / "absent").status().code(),
            ErrorCode::kInput);
  EXPECT_EQ(SafetensorsReader::open(directory.path()).status().code(), ErrorCode::kInput);
}

TEST(Safetensors, SurvivesDamagedBytes) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "mutated";
  const auto good = encode_safetensors(sample());
  const RandomKey key = RandomKey::of(1, "mutations");
  int read = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    auto bytes = good;
    const auto random = philox(key, i, 0);
    bytes[random[0] % bytes.size()] = static_cast<std::byte>(random[1]);
    if (random[2] % 4 == 0) bytes.resize(random[3] % bytes.size());
    write(path, bytes);
    const auto reader = SafetensorsReader::open(path);
    if (!reader.ok()) continue;
    for (const auto& [name, entry] : reader.value().entries()) {
      read += reader.value().read(name).ok();
    }
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace fleet::fluid
