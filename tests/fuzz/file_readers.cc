#include "tests/fuzz/file_readers.h"

#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "fluid/data/data_loader.h"
#include "fluid/data/files.h"
#include "fluid/io/checkpoint_files.h"
#include "fluid/io/inference_model.h"
#include "fluid/io/paddle_program.h"
#include "fluid/io/paddle_tensor.h"
#include "fluid/io/persistables.h"
#include "fluid/io/safetensors.h"
#include "fluid/io/strict_json_impl.h"

namespace fleet::testing {
namespace {

namespace data = fluid::data;
using fluid::DType;
using fluid::Tensor;
using Json = nlohmann::json;

// Deep enough for whatever is written here; JSON is written by recursion.
constexpr int kMaxDepth = 100;

// True when the reader took the bytes.
bool takes(const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.text().what.empty()) throw std::logic_error("a refusal without a text");
    return false;
  }
}

// Not over what is there: the system may sync a file that is cut to nothing and written anew.
void write_anew(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::remove(file);
  std::ofstream(file, std::ios::binary) << text;
}

// An epoch of each way to end it, in the parts of one worker and of three.
void sample(const Tensor& rows) {
  const auto dataset = std::make_shared<data::TensorDataset>(fluid::Feed{{"x", rows}});
  for (const auto last : {data::LastBatch::kDrop, data::LastBatch::kKeep, data::LastBatch::kFill}) {
    for (const int workers : {1, 3}) {
      data::DataLoader loader(dataset, {.batch_size = 3, .last = last, .workers = workers});
      for (int64_t i = 0; i < std::min<int64_t>(loader.steps_per_epoch(), 4) + 1; ++i) {
        loader.next();
      }
    }
  }
}

void use_table(const data::CsvTable& table) {
  for (const auto& name : table.names()) {
    std::vector<std::string> words;
    const Tensor numbers = table.categories(name, words);
    takes([&] { sample(numbers); });
    takes([&] { table.categories(name, words, -1); });
    takes([&] { table.cell(table.rows(), name); });
    takes([&] { table.cell(0, name); });
  }
  for (const auto dtype : {DType::kFloat32, DType::kInt64}) {
    takes([&] { sample(table.numbers(dtype)); });
  }
  takes([&] { table.numbers(std::vector<std::string>{}, DType::kFloat32); });
}

void use_safetensors(const std::filesystem::path& path) {
  const auto reader = fluid::SafetensorsReader::open(path).value();
  for (const auto& [name, entry] : reader.entries()) {
    const Tensor tensor = reader.read(name).value();
    takes([&] { sample(tensor); });
  }
}

// As all the files of a saved model.
void load_as_a_model(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const char* name :
       {fluid::io::kModelFile, fluid::kManifestFile, fluid::kParameterFile, "__model__", "w"}) {
    std::filesystem::copy_file(path, folder / name);
  }
  fluid::Executor executor;
  fluid::io::load_inference_model(folder, executor);
}

void write_manifest(const std::filesystem::path& folder, Json manifest) {
  manifest.erase("crc32c");
  const std::string text = manifest.dump();
  manifest["crc32c"] = crc32c(std::as_bytes(std::span(text)));
  write_anew(folder / fluid::io::kCheckpointManifest, manifest.dump());
}

void use_checkpoint(const std::filesystem::path& folder) {
  using fluid::io::CheckpointReader;
  for (const Status& damage : CheckpointReader::find_damage(folder)) {
    if (damage.text().what.empty()) throw std::logic_error("a refusal without a text");
  }
  const auto reader = CheckpointReader::open(folder).value();
  for (const auto& [name, tensor] : reader.tensors()) {
    const Tensor value = reader.read(name).value();
    takes([&] { sample(value); });
  }
}

// As a part that the manifest knows, and as the manifest, as it is and with the right checksum.
void read_as_a_checkpoint(const std::string& text, const std::filesystem::path& folder) {
  constexpr const char* kPart = "part-0-of-1.safetensors";
  const auto good = folder / "good";
  if (!std::filesystem::exists(good)) {
    fluid::io::write_checkpoint_part(good, 0, 1, {{"w", Tensor::scalar(1.0F)}});
    fluid::io::write_checkpoint_manifest(good, {}, 1);
  }
  Json json = Json::parse(std::ifstream(good / fluid::io::kCheckpointManifest));
  json["files"][kPart] = text.size();
  write_anew(folder / kPart, text);
  write_manifest(folder, std::move(json));
  takes([&] { use_checkpoint(folder); });
  std::filesystem::remove(folder / kPart);
  std::filesystem::copy_file(good / kPart, folder / kPart);
  if (json = fluid::io::parse_strict_json(text, kMaxDepth); json.is_object()) {
    write_manifest(folder, std::move(json));
    takes([&] { use_checkpoint(folder); });
  }
  write_anew(folder / fluid::io::kCheckpointManifest, text);
  use_checkpoint(folder);
}

}  // namespace

int read_in_every_format(std::span<const std::byte> bytes, const std::filesystem::path& scratch) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::filesystem::path path = scratch / "bytes";
  write_anew(path, text);
  int taken = 0;
  const auto offer = [&taken](const std::function<void()>& read) { taken += takes(read) ? 1 : 0; };
  for (const char delimiter : {',', ';', '\t'}) {
    for (const bool header : {true, false}) {
      offer([&] {
        use_table(data::CsvTable::load(path, {.delimiter = delimiter, .header = header}));
      });
    }
  }
  for (const auto load : {data::load_idx, data::load_npy}) {
    offer([&] {
      const Tensor tensor = load(path);
      takes([&] { sample(tensor); });
    });
  }
  offer([&] { use_safetensors(path); });
  offer([&] { fluid::Program::from_bytes(bytes).value(); });
  offer([&] { fluid::Program::from_json(text).value(); });
  offer([&] { fluid::decode_paddle_program(bytes).value(); });
  offer([&] {
    auto rest = bytes;
    const Tensor tensor = fluid::decode_paddle_tensor(rest).value();
    takes([&] { sample(tensor); });
  });
  offer([&] {
    auto rest = bytes;
    fluid::decode_paddle_rows(rest).value();
  });
  offer([&] { load_as_a_model(path, scratch / "model"); });
  offer([&] { fluid::load_tensors(scratch / "model"); });
  offer([&] { read_as_a_checkpoint(text, scratch / "checkpoint"); });
  return taken;
}

}  // namespace fleet::testing
