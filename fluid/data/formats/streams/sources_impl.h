// The kinds of sources.
#pragma once

#include <sys/types.h>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "base/process/file_descriptor.h"
#include "fluid/data/formats/streams/byte_source.h"

namespace fleet::fluid::data {

enum class Packing { kNone, kGzip, kZstd };

// Of a file with these first bytes.
Packing packing_of(std::span<const char> first);

[[noreturn]] void throw_unreadable(const std::filesystem::path& path, int error);

class PlainSource final : public ByteSource {
 public:
  PlainSource(FileDescriptor file, std::filesystem::path path)
      : file_(std::move(file)), path_(std::move(path)) {}
  size_t read(std::span<char> into) override;
  bool skip(uint64_t bytes) override;

 private:
  FileDescriptor file_;
  std::filesystem::path path_;
};

// Packed bytes of another source, block by block.
class PackedInput {
 public:
  PackedInput(std::unique_ptr<ByteSource> source, std::filesystem::path path);

  // More bytes, where all were taken; false at the end.
  bool fill();
  std::span<const char> rest() const { return std::span(block_).subspan(at_, size_ - at_); }
  void take(size_t bytes) { at_ += bytes; }
  [[noreturn]] void corrupt(std::string_view format, std::string got) const;

 private:
  std::unique_ptr<ByteSource> source_;
  std::filesystem::path path_;
  std::vector<char> block_;
  size_t at_ = 0;
  size_t size_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(PackedInput input);
  ~GzipSource() override;
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  size_t read(std::span<char> into) override;

 private:
  PackedInput input_;
  z_stream stream_{};
  bool inside_ = true;  // of a member
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(PackedInput input);
  size_t read(std::span<char> into) override;

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  PackedInput input_;
  std::unique_ptr<ZSTD_DCtx, Free> context_;
  bool inside_ = true;  // of a frame
};

// A process group of its own; its end is always awaited.
class PipeSource final : public ByteSource {
 public:
  // `unpack`: a command that the file goes through first; may be empty.
  PipeSource(const FileDescriptor& file, std::filesystem::path path, const std::string& unpack,
             const SourceOptions& options);
  ~PipeSource() override;
  PipeSource(const PipeSource&) = delete;
  PipeSource& operator=(const PipeSource&) = delete;
  size_t read(std::span<char> into) override;

 private:
  // Until the descriptor can be read.
  void wait_for(int descriptor) const;
  void expect_success();
  void end_early();

  std::filesystem::path path_;
  std::string command_;
  const StopEvent* stop_;
  FileDescriptor output_;
  pid_t child_ = 0;  // 0: its end was awaited
};

}  // namespace fleet::fluid::data
