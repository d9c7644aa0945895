#include "fluid/io/persistables.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

#include "fluid/io/atomic_file.h"
#include "tests/fluid/executor/mlp.h"
#include "tests/fluid/io/temporary_directory.h"

namespace fleet::fluid {
namespace {

using testing::batch;
using testing::Mlp;
using testing::TemporaryDirectory;

std::vector<std::byte> bytes_of(const std::filesystem::path& path) {
  return read_whole_file(path, 1 << 24);
}

TEST(Persistables, ComeBackAndTrainOnBitForBit) {
  const TemporaryDirectory directory;
  const Mlp net;
  Executor first;
  first.run(net.startup);
  for (uint64_t i = 0; i < 3; ++i) first.run(net.main, batch(16, i));
  save_persistables(first, directory.path(), net.main);
  Executor second;
  load_persistables(second, directory.path(), net.main);
  const float a = first.run(net.main, batch(16, 3), {net.cost})[0].item<float>();
  const float b = second.run(net.main, batch(16, 3), {net.cost})[0].item<float>();
  EXPECT_EQ(a, b);
  EXPECT_TRUE(load_tensors(directory.path()).contains("learning_rate_0"));
}

TEST(Persistables, EqualRunsSaveEqualFiles) {
  const TemporaryDirectory one;
  const TemporaryDirectory two;
  const Mlp net;
  for (const auto& directory : {one.path(), two.path()}) {
    Executor executor;
    executor.run(net.startup);
    executor.run(net.main, batch(16, 0));
    save_persistables(executor, directory, net.main);
  }
  EXPECT_EQ(bytes_of(one.path() / kParameterFile), bytes_of(two.path() / kParameterFile));
  EXPECT_EQ(bytes_of(one.path() / kManifestFile), bytes_of(two.path() / kManifestFile));
}

TEST(Persistables, RefuseDamageAndOtherModels) {
  const TemporaryDirectory directory;
  const Mlp net;
  Executor executor;
  const auto code = [&](const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kOk;
  };
  const auto load = [&] { load_persistables(executor, directory.path(), net.main); };
  EXPECT_EQ(code([&] { save_persistables(executor, directory.path(), net.main); }),
            ErrorCode::kInvalidProgram);
  EXPECT_EQ(code(load), ErrorCode::kInput);
  executor.run(net.startup);
  save_persistables(executor, directory.path(), net.main);
  EXPECT_EQ(code(load), ErrorCode::kOk);

  NamedTensors tensors = load_tensors(directory.path());
  tensors["fc_0.w_0"] = Tensor::zeros(DType::kFloat32, {3, 3});
  save_tensors(directory.path(), tensors);
  EXPECT_EQ(code(load), ErrorCode::kShapeMismatch);
  tensors.erase("fc_0.w_0");
  save_tensors(directory.path(), tensors);
  EXPECT_EQ(code(load), ErrorCode::kInvalidProgram);

  save_persistables(executor, directory.path(), net.main);
  auto bytes = bytes_of(directory.path() / kParameterFile);
  bytes.back() ^= std::byte{1};
  write_file_atomically(directory.path() / kParameterFile, bytes);
  EXPECT_EQ(code(load), ErrorCode::kCorruptFile);
  std::ofstream(directory.path() / kManifestFile) << "{\"format_version\": 2}";
  EXPECT_EQ(code(load), ErrorCode::kCorruptFile);
}

}  // namespace
}  // namespace fleet::fluid
