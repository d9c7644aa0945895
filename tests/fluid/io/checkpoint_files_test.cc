#include "fluid/io/checkpoint_files.h"

#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/core/interleaved_rows.h"
#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/fluid/io/temporary_directory.h"

namespace fleet::fluid::io {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::flip_bit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::sample_info;
using testing::sample_tensors;
using testing::TemporaryDirectory;
using testing::text_of;
using testing::write_checkpoint;
using testing::write_text;
using Json = nlohmann::json;

class CheckpointFiles : public ::testing::Test {
 protected:
  std::filesystem::path manifest() const { return folder_ / kCheckpointManifest; }
  std::filesystem::path part(int part, int parts) const {
    return folder_ / str_cat("part-", part, "-of-", parts, ".safetensors");
  }
  Status open() const { return CheckpointReader::open(folder_).status(); }
  // What is said of the manifest when it is changed by somebody who knows its checksum.
  Status with(const std::function<void(Json&)>& change) const {
    const std::string before = text_of(manifest());
    Json json = Json::parse(before);
    change(json);
    json.erase("crc32c");
    const std::string text = json.dump();
    json["crc32c"] = crc32c(std::as_bytes(std::span(text)));
    write_text(manifest(), json.dump());
    Status status = open();
    write_text(manifest(), before);
    return status;
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path folder_ = directory_.path() / "checkpoint";
};

bool same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

TEST_F(CheckpointFiles, ComeBackAsTheyWere) {
  for (const int parts : {1, 3}) {
    std::filesystem::remove_all(folder_);
    write_checkpoint(folder_, parts, sample_tensors());
    const CheckpointReader reader = CheckpointReader::open(folder_).value();
    EXPECT_EQ(reader.folder(), folder_);
    EXPECT_EQ(reader.info(), sample_info());
    EXPECT_EQ(reader.tensors().size(), sample_tensors().size());
    EXPECT_TRUE(reader.finite());
    uint64_t bytes = 0;
    for (int i = 0; i < parts; ++i) bytes += std::filesystem::file_size(part(i, parts));
    EXPECT_EQ(reader.bytes(), bytes);
    for (const auto& [name, tensor] : sample_tensors()) {
      EXPECT_TRUE(same(reader.read(name).value(), tensor)) << name;
      EXPECT_EQ(reader.tensors().at(name).dtype, tensor.dtype());
      EXPECT_EQ(reader.tensors().at(name).shape, tensor.shape());
    }
    EXPECT_THAT(CheckpointReader::find_damage(folder_), IsEmpty());
    // The lists of parts are gone.
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), parts + 1);
  }
}

TEST_F(CheckpointFiles, MayHoldNothing) {
  write_checkpoint(folder_, 2, {}, {});
  const CheckpointReader reader = CheckpointReader::open(folder_).value();
  EXPECT_EQ(reader.info(), CheckpointInfo());
  EXPECT_THAT(reader.tensors(), IsEmpty());
  EXPECT_TRUE(reader.finite());
}

TEST_F(CheckpointFiles, KeepTheLargestNumbers) {
  CheckpointInfo info = sample_info(std::numeric_limits<int64_t>::max());
  info.epoch = std::numeric_limits<int64_t>::min();
  info.workers = info.servers = info.logical_shards = std::numeric_limits<int>::max();
  info.readers = {{"", std::numeric_limits<int64_t>::min()}, {"\"/\x01", 1}};
  write_checkpoint(folder_, 1, {}, info);
  EXPECT_EQ(CheckpointReader::open(folder_).value().info(), info);
}

TEST_F(CheckpointFiles, KnowWhetherTheirValuesAreFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto half = [](DType dtype, uint16_t word) {
    Tensor tensor(dtype, {2});
    const uint16_t words[2] = {0x3C00, word};
    std::memcpy(tensor.raw(), words, sizeof words);
    return tensor;
  };
  const auto finite = [this](const Tensor& tensor) {
    write_checkpoint(folder_, 1, {{"a", Tensor::scalar(1.0F)}, {"w", tensor}});
    const CheckpointReader reader = CheckpointReader::open(folder_).value();
    EXPECT_TRUE(reader.tensors().at("a").finite());
    EXPECT_EQ(reader.finite(), reader.tensors().at("w").finite());
    return reader.finite();
  };
  EXPECT_TRUE(finite(Tensor::from<float>({1, -3e38F}, {2})));
  EXPECT_FALSE(finite(Tensor::from<float>({1, -infinity}, {2})));
  EXPECT_FALSE(finite(Tensor::from<double>({std::nan(""), 1}, {2})));
  EXPECT_TRUE(finite(Tensor::from<int64_t>({-1, 1}, {2})));
  EXPECT_TRUE(finite(half(DType::kFloat16, 0x7BFF)));
  EXPECT_FALSE(finite(half(DType::kFloat16, 0xFC00)));
  EXPECT_TRUE(finite(half(DType::kBFloat16, 0x7F7F)));
  EXPECT_FALSE(finite(half(DType::kBFloat16, 0x7FC0)));
}

// A variable of five rows, of which one part has two in a row, and two parts every second of the
// rest.
class Pieces : public CheckpointFiles {
 protected:
  Pieces() : whole_(testing::sample_tensor(DType::kFloat32, {5, 3})) {
    const auto rows = [this](int64_t first, int64_t stride) {
      return CheckpointRows{.of = "w", .shape = whole_.shape(), .first = first, .stride = stride};
    };
    write_checkpoint_part(folder_, 0, 3, {{"w.block0", whole_.rows(0, 2)}, {"b", whole_}},
                          system_files(), {{"w.block0", rows(0, 1)}});
    write_checkpoint_part(folder_, 1, 3, {{"w.block1", take_rows(whole_, 2, 2, 2)}}, system_files(),
                          {{"w.block1", rows(2, 2)}});
    write_checkpoint_part(folder_, 2, 3, {{"w.block2", whole_.rows(3, 4)}}, system_files(),
                          {{"w.block2", rows(3, 1)}});
    write_checkpoint_manifest(folder_, sample_info(), 3);
  }
  // What is said when rows of a block are told otherwise.
  std::string said(const char* block, const char* field, const Json& value) const {
    return with([&](Json& json) { json["tensors"][block]["rows"][field] = value; }).to_string();
  }

  const Tensor whole_;
};

TEST_F(Pieces, AreOneVariable) {
  const CheckpointReader reader = CheckpointReader::open(folder_).value();
  EXPECT_EQ(reader.tensors().size(), 2U);
  const CheckpointTensor& tensor = reader.tensors().at("w");
  EXPECT_EQ(tensor.shape, whole_.shape());
  EXPECT_EQ(tensor.pieces.size(), 3U);
  EXPECT_EQ(tensor.files(),
            "part-0-of-3.safetensors, part-1-of-3.safetensors, part-2-of-3.safetensors");
  EXPECT_TRUE(same(reader.read("w").value(), whole_));
  EXPECT_TRUE(same(reader.read("b").value(), whole_));
  EXPECT_THAT(CheckpointReader::find_damage(folder_), IsEmpty());
}

// As servers ask for their slices: as they were saved, or otherwise.
TEST_F(Pieces, AreReadAsOtherRows) {
  const CheckpointReader reader = CheckpointReader::open(folder_).value();
  for (const char* name : {"w", "b"}) {
    for (int64_t first = 0; first < 5; ++first) {
      for (int64_t stride = 1; stride <= 6; ++stride) {
        for (int64_t count = 0; count <= 6; ++count) {
          Tensor rows(DType::kFloat32, {count, 3});
          EXPECT_TRUE(reader.read_rows_into(name, first, stride, rows).ok());
          EXPECT_TRUE(reader.check_rows(name, first, stride, count).ok());
          EXPECT_TRUE(same(rows, take_rows(whole_, first, stride, count)))
              << name << " " << first << " " << stride << " " << count;
        }
      }
    }
  }
}

// Others may be damaged.
TEST_F(Pieces, AreReadWhereTheyHaveSuchRows) {
  flip_bit(part(0, 3), std::filesystem::file_size(part(0, 3)) - 1);
  const CheckpointReader reader = CheckpointReader::open(folder_).value();
  Tensor rows(DType::kFloat32, {3, 3});
  EXPECT_TRUE(reader.read_rows_into("w", 2, 1, rows).ok());
  EXPECT_TRUE(same(rows, take_rows(whole_, 2, 1, 3)));
  EXPECT_TRUE(reader.check_rows("w", 2, 1, 3).ok());
  EXPECT_EQ(reader.read_rows_into("w", 1, 1, rows).code(), ErrorCode::kCorruptFile);
  EXPECT_EQ(reader.check_rows("w", 1, 1, 3).code(), ErrorCode::kCorruptFile);
}

TEST_F(Pieces, AreAllNamedWhenTheyAreDamaged) {
  flip_bit(part(1, 3), std::filesystem::file_size(part(1, 3)) - 1);
  const auto found = CheckpointReader::find_damage(folder_);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].to_string(), AllOf(HasSubstr("part-1-of-3"), HasSubstr("'w.block1'")));
}

TEST_F(Pieces, HaveEachRowOnce) {
  for (const auto& [block, field, value] :
       {std::tuple("w.block2", "first", 2), std::tuple("w.block1", "stride", 1),
        std::tuple("w.block0", "first", 3)}) {
    EXPECT_THAT(said(block, field, value),
                AllOf(HasSubstr("missing, or there twice"), HasSubstr("'w'")))
        << block << " " << field;
  }
  EXPECT_THAT(with([](Json& json) { json["tensors"].erase("w.block2"); }).to_string(),
              HasSubstr("missing, or there twice"));
}

TEST_F(Pieces, AreInsideOfTheirVariable) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const Json& value : {Json(4), Json(5), Json(most)}) {
    EXPECT_THAT(said("w.block1", "first", value), HasSubstr("is not of its variable"));
  }
  EXPECT_THAT(said("w.block1", "stride", most), HasSubstr("is not of its variable"));
  EXPECT_THAT(said("w.block1", "stride", 0), HasSubstr("'tensors/w.block1/rows/stride'"));
  EXPECT_THAT(said("w.block1", "first", -1), HasSubstr("'tensors/w.block1/rows/first'"));
  EXPECT_THAT(said("w.block0", "shape", {5, 4}), HasSubstr("is not of its variable"));
  EXPECT_THAT(said("w.block0", "shape", {most, 3}), HasSubstr("missing, or there twice"));
  EXPECT_THAT(said("w.block0", "shape", {-1, 3}), HasSubstr("no such shape"));
  EXPECT_THAT(said("w.block0", "shape", Json::array()), HasSubstr("is not of its variable"));
  EXPECT_THAT(said("w.block0", "shape", std::vector<int>(12, 1)), HasSubstr("no such shape"));
  EXPECT_THAT(said("w.block0", "variable", "b"), HasSubstr("missing, or there twice"));
}

TEST_F(CheckpointFiles, AreBegunUntilTheManifestIsThere) {
  EXPECT_FALSE(is_checkpoint_begun(folder_));
  begin_checkpoint(folder_);
  EXPECT_TRUE(is_checkpoint_begun(folder_));
  write_checkpoint(folder_, 1, {});
  EXPECT_FALSE(is_checkpoint_begun(folder_));
}

TEST_F(CheckpointFiles, ProposeTheNearestName) {
  write_checkpoint(folder_, 1, {{"fc_0.w_0", Tensor::scalar(1.0F)}});
  const Status status = CheckpointReader::open(folder_).value().read("fc_0.w").status();
  EXPECT_EQ(status.code(), ErrorCode::kUnknownName);
  EXPECT_THAT(status.to_string(), HasSubstr("did you mean 'fc_0.w_0'"));
}

TEST_F(CheckpointFiles, AreNotThereUntilAllPartsAre) {
  write_checkpoint_part(folder_, 1, 3, {});
  EXPECT_THAT(missing_checkpoint_parts(folder_, 3), ElementsAre(0, 2));
  EXPECT_EQ(open().code(), ErrorCode::kInput);
  EXPECT_THROW(write_checkpoint_manifest(folder_, sample_info(), 3), ResourceError);
  EXPECT_EQ(open().code(), ErrorCode::kInput);
  write_checkpoint_part(folder_, 0, 3, sample_tensors());
  write_checkpoint_part(folder_, 2, 3, {});
  EXPECT_THAT(missing_checkpoint_parts(folder_, 3), IsEmpty());
  write_checkpoint_manifest(folder_, sample_info(), 3);
  EXPECT_TRUE(open().ok());
  EXPECT_EQ(CheckpointReader::open(directory_.path() / "none").status().code(), ErrorCode::kInput);
}

TEST_F(CheckpointFiles, SayWhatAWriterThatGaveUpSaid) {
  write_checkpoint_part(folder_, 0, 2, {});
  // A path in it may be of any bytes.
  give_up_checkpoint_part(folder_, 1, 2, "no space for \xFF.safetensors");
  try {
    missing_checkpoint_parts(folder_, 2);
    FAIL() << "nothing was said";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no space for"), HasSubstr("part 1")));
  }
  EXPECT_THROW(write_checkpoint_manifest(folder_, sample_info(), 2), ResourceError);
  write_text(directory_.path() / "file", "");
  give_up_checkpoint_part(directory_.path() / "file", 0, 1, "it cannot be told");
}

TEST_F(CheckpointFiles, RefuseTextsThatAreNotUtf8) {
  testing::write_parts(folder_, 1, {});
  CheckpointInfo info = sample_info();
  info.values["name"] = "\xFF";
  try {
    write_checkpoint_manifest(folder_, info, 1);
    FAIL() << "it was written";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("not UTF-8"), HasSubstr("'values'")));
  }
}

TEST_F(CheckpointFiles, RefuseListsOfPartsThatAreNone) {
  testing::write_parts(folder_, 1, {});
  const Json good = Json::parse(text_of(folder_ / "part-0-of-1.json"));
  for (const char* field : {"bytes", "file", "tensors"}) {
    for (const Json& value : {Json(true), Json(-1.5), Json::array({1})}) {
      Json list = good;
      list[field] = value;
      write_text(folder_ / "part-0-of-1.json", list.dump());
      try {
        write_checkpoint_manifest(folder_, sample_info(), 1);
        FAIL() << field << " " << value;
      } catch (const ResourceError& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorruptFile);
        EXPECT_THAT(error.what(), HasSubstr(str_cat("'", field, "'")));
      }
    }
  }
}

TEST_F(CheckpointFiles, RefuseFilesElsewhere) {
  write_checkpoint(folder_, 1, {});
  std::filesystem::copy(part(0, 1), directory_.path() / "part-0-of-1.safetensors");
  const uint64_t size = std::filesystem::file_size(part(0, 1));
  for (const std::string& name :
       {std::string("../part-0-of-1.safetensors"), std::string(".."), std::string("."),
        std::string(), part(0, 1).string(), std::string("./part-0-of-1.safetensors"),
        std::string("sub/"), std::string("/")}) {
    const Status status = with([&](Json& json) { json["files"] = {{name, size}}; });
    EXPECT_EQ(status.code(), ErrorCode::kCorruptFile) << name;
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("elsewhere"), HasSubstr("'" + name + "'")));
  }
}

TEST_F(CheckpointFiles, NameTheVersionThatTheyDoNotRead) {
  write_checkpoint(folder_, 1, {});
  const Status newer = with([](Json& json) { json["format_version"] = 2; });
  EXPECT_EQ(newer.code(), ErrorCode::kCorruptFile);
  EXPECT_THAT(newer.to_string(), AllOf(HasSubstr("format version 2"), HasSubstr("expected: 1"),
                                       HasSubstr("the Fleet that wrote it")));
  EXPECT_FALSE(with([](Json& json) { json["format_version"] = 0; }).ok());
}

// Every field, of every other kind, with a right checksum.
TEST_F(CheckpointFiles, NameFieldsOfAWrongKind) {
  write_checkpoint(folder_, 1, {{"w", Tensor::scalar(1.0F)}});
  ASSERT_TRUE(with([](Json&) {}).ok());
  const std::vector<Json> kinds = {nullptr, true, -7, 1.5, 1e300, "text", {1, 2}, {{"key", 1}}};
  const Json good = Json::parse(text_of(manifest()));
  const auto check = [&](const std::string& pointer, const std::vector<Json>& fitting) {
    SCOPED_TRACE(pointer);
    const Json::json_pointer at("/" + pointer);
    for (const Json& kind : kinds) {
      const bool fits = std::any_of(fitting.begin(), fitting.end(),
                                    [&](const Json& other) { return other.type() == kind.type(); });
      const Status status = with([&](Json& json) { json[at] = kind; });
      if (fits) continue;
      EXPECT_EQ(status.code(), ErrorCode::kCorruptFile) << kind;
      EXPECT_THAT(status.to_string(), HasSubstr("'" + pointer + "'")) << kind;
    }
    const Status missing = with([&](Json& json) { json[at.parent_pointer()].erase(at.back()); });
    if (at.back() == "finite" || pointer.find("s/") != std::string::npos) return;
    EXPECT_EQ(missing.code(), ErrorCode::kCorruptFile);
    EXPECT_THAT(missing.to_string(), HasSubstr("'" + pointer + "'"));
  };
  for (const char* text : {"mode", "program", "strategy", "values/best"}) check(text, {"text"});
  for (const char* number : {"epoch", "readers/train", "format_version"}) check(number, {-7});
  for (const char* count : {"step", "workers", "servers", "logical_shards",
                            "files/part-0-of-1.safetensors", "tensors/w/crc32c"}) {
    check(count, {});
  }
  for (const char* object : {"readers", "values", "files", "tensors"}) {
    check(object, {Json::object()});
  }
  check("tensors/w", {Json::object()});
  check("tensors/w/file", {"text"});
  check("tensors/w/dtype", {"text"});
  check("tensors/w/shape", {Json::array()});
  check("tensors/w/finite", {true});
}

TEST_F(CheckpointFiles, HoldTheManifestAgainstTheFiles) {
  write_checkpoint(folder_, 1, {{"w", Tensor::scalar(1.0F)}});
  const auto said = [&](const char* pointer, const Json& value) {
    return with([&](Json& json) { json[Json::json_pointer(pointer)] = value; }).to_string();
  };
  EXPECT_THAT(said("/tensors/w/dtype", "int32"),
              AllOf(HasSubstr("'w'"), HasSubstr("int32[1]"), HasSubstr("float32[1]")));
  EXPECT_THAT(said("/tensors/w/shape", {1, 1}), HasSubstr("float32[1, 1]"));
  EXPECT_THAT(said("/tensors/w/file", "other"), HasSubstr("other"));
  EXPECT_THAT(said("/tensors/v", {{"file", "part-0-of-1.safetensors"}}), HasSubstr("'v'"));
  EXPECT_THAT(said("/files/more.safetensors", 8), HasSubstr("more.safetensors"));
  EXPECT_THAT(said("/files/part-0-of-1.safetensors", 8), HasSubstr("another size"));
  // The checksum is right and the value is not.
  EXPECT_EQ(said("/tensors/w/crc32c", 1), "ok");
}

TEST_F(CheckpointFiles, SurviveDeepNesting) {
  write_checkpoint(folder_, 1, {});
  constexpr size_t kDepth = 2'000'000;
  std::string text = text_of(manifest());
  text.insert(1, "\"a\": " + std::string(kDepth, '[') + std::string(kDepth, ']') + ",");
  write_text(manifest(), text);
  EXPECT_EQ(open().code(), ErrorCode::kCorruptFile);
}

TEST_F(CheckpointFiles, FindEveryDamageOfTheManifest) {
  write_checkpoint(folder_, 1, {{"w", Tensor::scalar(1.0F)}}, {.step = 1, .mode = "local"});
  ASSERT_TRUE(open().ok());
  // The line break at the end says nothing.
  const size_t size = std::filesystem::file_size(manifest()) - 1;
  for (size_t byte = 0; byte < size; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      flip_bit(manifest(), byte, bit);
      EXPECT_EQ(open().code(), ErrorCode::kCorruptFile) << byte << " bit " << bit;
      flip_bit(manifest(), byte, bit);
    }
  }
  EXPECT_TRUE(open().ok());
  for (size_t end = size; end-- > 0;) {
    std::filesystem::resize_file(manifest(), end);
    EXPECT_EQ(open().code(), ErrorCode::kCorruptFile) << end;
  }
}

TEST_F(CheckpointFiles, FindEveryDamageOfParts) {
  write_checkpoint(
      folder_, 1,
      {{"a", Tensor::from<float>({1, 2}, {2})}, {"b", Tensor::from<int64_t>({3}, {1})}});
  const size_t size = std::filesystem::file_size(part(0, 1));
  const size_t data = size - 16;
  for (size_t byte = 0; byte < size; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      flip_bit(part(0, 1), byte, bit);
      const auto found = CheckpointReader::find_damage(folder_);
      ASSERT_FALSE(found.empty()) << byte << " bit " << bit;
      EXPECT_EQ(found[0].code(), ErrorCode::kCorruptFile);
      EXPECT_THAT(found[0].to_string(), HasSubstr("part-0-of-1.safetensors"));
      if (byte >= data) {
        EXPECT_EQ(found.size(), 1U);
        EXPECT_THAT(found[0].to_string(), HasSubstr(byte < data + 8 ? "'a'" : "'b'"));
      }
      flip_bit(part(0, 1), byte, bit);
    }
  }
  EXPECT_TRUE(open().ok());
  for (size_t end = size; end-- > 0;) {
    std::filesystem::resize_file(part(0, 1), end);
    EXPECT_EQ(open().code(), ErrorCode::kCorruptFile);
  }
}

TEST_F(CheckpointFiles, NameEverythingThatIsDamaged) {
  write_checkpoint(folder_, 3, sample_tensors());
  std::filesystem::remove(part(0, 3));
  for (const int other : {1, 2}) {
    flip_bit(part(other, 3), static_cast<size_t>(std::filesystem::file_size(part(other, 3))) - 1);
  }
  std::string said;
  for (const Status& damage : CheckpointReader::find_damage(folder_)) {
    said += damage.to_string() + "\n";
  }
  EXPECT_THAT(said,
              AllOf(HasSubstr("part-0-of-3"), HasSubstr("part-1-of-3"), HasSubstr("part-2-of-3")));
  EXPECT_EQ(CheckpointReader::find_damage(folder_).size(), 3U);
}

TEST_F(CheckpointFiles, SurviveRandomBytes) {
  write_checkpoint(folder_, 1, sample_tensors());
  const std::string files[] = {text_of(manifest()), text_of(part(0, 1))};
  const RandomKey key = RandomKey::of(1, "garbage");
  for (uint64_t i = 0; i < 1000; ++i) {
    const auto random = philox(key, i, 0);
    std::string text = files[random[0] % 2];
    if (i % 3 == 0) text = std::string(random[1] % 200, '\0');
    for (uint32_t n = 0; n < 1 + (i % 3 == 0 ? text.size() : random[1] % 8) && !text.empty(); ++n) {
      const auto other = philox(key, i, n + 1);
      text[other[0] % text.size()] = static_cast<char>(other[1]);
    }
    write_text(random[0] % 2 == 0 ? manifest() : part(0, 1), text);
    for (const Status& damage : CheckpointReader::find_damage(folder_)) {
      EXPECT_EQ(damage.code(), ErrorCode::kCorruptFile);
    }
    write_text(random[0] % 2 == 0 ? manifest() : part(0, 1), files[random[0] % 2]);
  }
}

}  // namespace
}  // namespace fleet::fluid::io
