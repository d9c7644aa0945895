// Files of Paddle: read, written to the same bytes, and run.
#include <algorithm>
#include <fstream>
#include <optional>
#include <random>

#include "base/strings.h"
#include "fluid/io/atomic_file.h"
#include "fluid/io/inference_model.h"
#include "fluid/io/paddle_tensor.h"
#include "tests/golden/numeric/numeric_case.h"

namespace fleet::fluid::golden {
namespace {

constexpr size_t kLimit = size_t{1} << 24;

// A case may lack any of its parts: the tensors beside it (its files are then compared by their
// bytes alone), single tensors, persistable variables, inference models.
class Saves : public FileCase {
 protected:
  void SetUp() override {
    json_ = load(GetParam());
    ASSERT_THAT(unknown_in(json_), ::testing::IsEmpty());
    ASSERT_TRUE(json_.contains("folders") && !json_["folders"].empty()) << "nothing was saved";
    if (!json_.contains("file")) return;
    reader_ = SafetensorsReader::open(GetParam().parent_path() / json_["file"].get<std::string>())
                  .value();
  }

  bool has(const std::string& folder) const { return json_["folders"].contains(folder); }
  std::filesystem::path folder(const std::string& name) const {
    return GetParam().parent_path() / json_.value("root", "") / name;
  }
  Json tensors() const { return json_.value("tensors", Json::object()); }
  std::vector<std::string> persistables() const {
    auto names = json_.value("persistable_variables", std::vector<std::string>());
    std::sort(names.begin(), names.end());  // as combined files have them
    return names;
  }
  // The tensor of that name beside the case, in whatever group it is.
  std::optional<Tensor> stored(const std::string& name) const {
    for (const char* group : {"persistable/", "tensors/", ""}) {
      if (reader_.contains(group + name)) return tensor(group + name);
    }
    EXPECT_FALSE(json_.contains("file")) << name << " is not in the file of tensors";
    return std::nullopt;
  }
  void expect_stored(const Tensor& got, const std::string& name) const {
    const auto expected = stored(name);
    if (expected) {
      EXPECT_EQ(difference(got, *expected, 0), "") << name;
    }
  }
  // With the types and shapes that the saved files have.
  Program with_persistables() const {
    Program program;
    std::vector<std::byte> combined;
    if (has("persistables_combined")) {
      combined = read_whole_file(folder("persistables_combined") / "all", kLimit);
    }
    std::span<const std::byte> rest(combined);
    for (const std::string& name : persistables()) {
      std::vector<std::byte> bytes;
      if (!has("persistables_combined")) {
        bytes = read_whole_file(folder("persistables_separate") / name, kLimit);
        rest = bytes;
      }
      const Tensor value = decode_paddle_tensor(rest).value();
      VarDesc var;
      var.name = name;
      var.dtype = value.dtype();
      var.shape = value.shape();
      var.persistable = true;
      program.global_block().add_var(var);
    }
    return program;
  }
};

TEST_P(Saves, TensorsAreReadAndWrittenToTheSameBytes) {
  const Json single = tensors();
  for (const auto& [name, about] : single.items()) {
    const auto bytes = read_whole_file(folder("tensors") / name, kLimit);
    std::span<const std::byte> rest(bytes);
    std::vector<std::byte> written;
    if (about.value("kind", "") == "selected_rows") {
      const SelectedRows rows = decode_paddle_rows(rest).value();
      EXPECT_EQ(rows.height, about["height"].get<int64_t>());
      EXPECT_EQ(rows.rows, about["rows"].get<std::vector<int64_t>>());
      expect_stored(rows.value, name + "/value");
      encode_paddle(rows, written);
    } else {
      const Tensor value = decode_paddle_tensor(rest).value();
      EXPECT_EQ(dtype_name(value.dtype()), about["dtype"].get<std::string>()) << name;
      EXPECT_EQ(value.shape().to_vector(), about["shape"].get<std::vector<int64_t>>()) << name;
      expect_stored(value, name);
      std::vector<std::vector<int64_t>> lengths;
      for (const auto& offsets : value.lod()) {
        lengths.emplace_back();
        for (size_t i = 1; i < offsets.size(); ++i) {
          lengths.back().push_back(offsets[i] - offsets[i - 1]);
        }
      }
      const Json expected = about["lod_lengths"];
      EXPECT_EQ(Json(lengths), expected.is_null() ? Json::array() : expected) << name;
      encode_paddle(value, written);
    }
    EXPECT_TRUE(rest.empty()) << name;
    EXPECT_EQ(written, bytes) << name;
  }
}

TEST_P(Saves, PersistablesAreReadAndWrittenToTheSameBytes) {
  const auto target = std::filesystem::temp_directory_path() /
                      str_cat("fleet_saves_", ::testing::UnitTest::GetInstance()->random_seed(),
                              "_", reinterpret_cast<uintptr_t>(this));
  for (const std::string params : {"", "all"}) {
    const std::string form = params.empty() ? "persistables_separate" : "persistables_combined";
    if (!has(form)) continue;
    const Program program = with_persistables();
    const auto source = folder(form);
    Executor executor;
    io::load_paddle_persistables(source, executor, program, params);
    for (const std::string& name : persistables()) {
      expect_stored(executor.scope().tensor(name), name);
    }
    io::save_paddle_persistables(target, executor, program, params);
    for (const auto& entry : std::filesystem::directory_iterator(source)) {
      EXPECT_EQ(read_whole_file(target / entry.path().filename(), kLimit),
                read_whole_file(entry.path(), kLimit))
          << entry.path();
    }
  }
  std::filesystem::remove_all(target);
}

TEST_P(Saves, InferenceModelsComputeTheRecordedOutput) {
  if (!json_.contains("inference")) return;
  const Json& about = json_["inference"];
  const struct {
    const char* folder;
    io::PaddleFiles files;
  } kinds[] = {{"inference_separate", {}}, {"inference_combined", {"model", "params"}}};
  for (const auto& kind : kinds) {
    if (!has(kind.folder)) continue;
    Executor executor;
    const InferenceModel model =
        io::load_inference_model(folder(kind.folder), executor, kind.files);
    EXPECT_EQ(model.feeds, about["feed"].get<std::vector<std::string>>());
    ASSERT_EQ(model.fetches.size(), 1u);
    if (!json_.contains("file")) continue;
    const Tensor x = tensor(about["input"].get<std::string>());
    const Tensor out = executor.run(model.program, {{model.feeds[0], x}}, {model.fetches[0]})[0];
    expect_equal(out, about["output"].get<std::string>(), 1e-5);
  }
}

// Whatever is done to the bytes, reading ends with a value or an error.
TEST_P(Saves, DamagedProgramsAreRefusedOrRead) {
  if (!has("inference_separate")) return;
  const auto model = read_whole_file(folder("inference_separate") / "__model__", kLimit);
  ASSERT_TRUE(decode_paddle_program(model).ok());
  for (size_t length = 0; length < model.size(); length += 7) {
    (void)decode_paddle_program(std::span(model).first(length)).ok();
  }
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    auto damaged = model;
    damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    refused += decode_paddle_program(damaged).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 200);
}

TEST_P(Saves, DamagedTensorsAreRefusedOrRead) {
  std::mt19937 random(7);
  const Json single = tensors();
  for (const auto& [name, about] : single.items()) {
    const auto bytes = read_whole_file(folder("tensors") / name, kLimit);
    for (size_t length = 0; length < bytes.size(); ++length) {
      std::span<const std::byte> rest = std::span(bytes).first(length);
      EXPECT_FALSE(decode_paddle_tensor(rest).ok()) << name << " cut at " << length;
      rest = std::span(bytes).first(length);
      EXPECT_FALSE(decode_paddle_rows(rest).ok()) << name << " cut at " << length;
    }
    for (int i = 0; i < 2000; ++i) {
      auto damaged = bytes;
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
      std::span<const std::byte> rest(damaged);
      (void)decode_paddle_tensor(rest).ok();
      rest = damaged;
      (void)decode_paddle_rows(rest).ok();
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Saves);
INSTANTIATE_TEST_SUITE_P(Golden, Saves, ::testing::ValuesIn(cases("saves")), case_name);

}  // namespace
}  // namespace fleet::fluid::golden
