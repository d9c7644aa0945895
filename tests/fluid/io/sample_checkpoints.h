// Small checkpoints, and damages to their files.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/philox.h"
#include "fluid/io/checkpoint_store.h"

namespace fleet::fluid::testing {

inline Tensor sample_tensor(DType dtype, const Shape& shape, uint64_t seed = 1) {
  Tensor tensor(dtype, shape);
  const RandomKey key = RandomKey::of(seed, "sample");
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    // Small positive values of every type, and booleans that are one.
    const auto byte = philox(key, i, 0)[0] & (dtype == DType::kBool ? 0x01U : 0x3FU);
    tensor.raw()[i] = static_cast<std::byte>(byte);
  }
  return tensor;
}

// Of every type, an empty one and a scalar among them.
inline NamedTensors sample_tensors(uint64_t seed = 1) {
  NamedTensors tensors;
  for (int type = 0; type <= static_cast<int>(DType::kFloat64); ++type) {
    const auto dtype = static_cast<DType>(type);
    tensors[std::string(dtype_name(dtype))] = sample_tensor(dtype, {2, 3}, seed);
  }
  tensors["empty"] = sample_tensor(DType::kFloat32, {0, 5}, seed);
  tensors["scalar"] = sample_tensor(DType::kFloat64, {}, seed);
  return tensors;
}

inline io::CheckpointInfo sample_info(int64_t step = 300) {
  return {.step = step,
          .epoch = 2,
          .mode = "sync",
          .program = "17442342342",
          .strategy = "{\"k\": 1}",
          .workers = 4,
          .servers = 2,
          .logical_shards = 8,
          .readers = {{"train", 1200}, {"other", 0}},
          .values = {{"best", "0.93"}, {"name", "größer\n"}}};
}

// The tensors, each in one of the parts, in a folder without a manifest.
inline void write_parts(const std::filesystem::path& folder, int parts, const NamedTensors& tensors,
                        FileSystem& files = system_files()) {
  std::vector<NamedTensors> shares(static_cast<size_t>(parts));
  size_t next = 0;
  for (const auto& [name, tensor] : tensors) shares[next++ % shares.size()].emplace(name, tensor);
  for (int part = 0; part < parts; ++part) {
    io::write_checkpoint_part(folder, part, parts, shares[static_cast<size_t>(part)], files);
  }
}

inline void write_checkpoint(const std::filesystem::path& folder, int parts,
                             const NamedTensors& tensors,
                             const io::CheckpointInfo& info = sample_info()) {
  write_parts(folder, parts, tensors);
  io::write_checkpoint_manifest(folder, info, parts);
}

// As a job does it.
inline void commit_checkpoint(const io::CheckpointStore& store, const NamedTensors& tensors,
                              const io::CheckpointInfo& info,
                              const io::CheckpointRetention& retention = {.keep = 0}) {
  const auto folder = store.unfinished(info.step, "job");
  write_parts(folder, 2, tensors, store.files());
  store.commit(folder, info, 2, retention).throw_if_error();
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A file that is cut to nothing and written anew may be synced, which takes its time.
inline void write_text(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::remove(file);
  std::ofstream(file, std::ios::binary) << text;
}

// In place; a second time it is as before.
inline void flip_bit(const std::filesystem::path& file, size_t byte, int bit = 0) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int before = stream.get();
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(before ^ (1 << bit)));
}

}  // namespace fleet::fluid::testing
