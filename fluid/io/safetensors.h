// Tensors in files: the safetensors format (a length, a JSON header, raw little-endian data).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_system.h"
#include "base/status.h"
#include "fluid/core/tensor.h"

namespace fleet::fluid {

using NamedTensors = std::map<std::string, Tensor>;

// The bytes of a file that holds these tensors and texts, always the same for the same contents:
// names sorted, no times, data in the order of names, 8-byte aligned header.
std::vector<std::byte> encode_safetensors(const NamedTensors& tensors,
                                          const std::map<std::string, std::string>& metadata = {});

// Is shown the elements of a tensor of that name, some at a time, as a tensor of one dimension.
using ElementsSeen = std::function<void(const std::string& name, const Tensor& elements)>;

// Writes such a file beside the target, syncs it and renames it: readers see the old file or the
// new one, never a part. `seen` is shown what is about to be written. Throws ResourceError.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       FileSystem& files = system_files(), const ElementsSeen& seen = nullptr);

// One file, read on demand. Treats the bytes as hostile: every length, offset, shape and type is
// checked against the file's size before anything is allocated. Safe to read from several threads.
// The file system must outlive it.
class SafetensorsReader {
 public:
  struct Entry {
    DType dtype = DType::kFloat32;
    Shape shape;
    uint64_t begin = 0;  // in the file
    uint64_t bytes = 0;
  };

  // kInput when the file cannot be read, kCorruptFile when it is not what it should be.
  static Result<SafetensorsReader> open(const std::filesystem::path& path,
                                        FileSystem& files = system_files());

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(std::string_view name) const { return entries_.contains(std::string(name)); }
  // kUnknownName with the nearest name; kInput when the file went away meanwhile.
  Result<Tensor> read(std::string_view name) const;
  // The same into the memory of a tensor of its type and shape, on the host; the CRC-32C of its
  // data comes back.
  Result<uint32_t> read_into(std::string_view name, Tensor& tensor) const;
  // That checksum; the data is checked as it is for others, and not kept.
  Result<uint32_t> checksum(std::string_view name) const;

 private:
  Result<const Entry*> find(std::string_view name) const;
  // Reads the tensor's data piece by piece, each to memory(begin, size), where `begin` counts from
  // the tensor's first byte; its checksum comes back.
  template <class Memory>
  Result<uint32_t> read_pieces(std::string_view name, const Memory& memory) const;

  FileSystem* files_ = nullptr;
  std::filesystem::path path_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace fleet::fluid
