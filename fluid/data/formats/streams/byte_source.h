// Bytes of a file that is read from its begin to its end: plain, gzip or zstd, told by the file's
// first bytes, or what a user's command makes of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/process/file_descriptor.h"

namespace fleet::fluid::data {

// Ends waits of other threads. Any thread.
class StopEvent {
 public:
  StopEvent();
  void set() const;
  // Readable once set.
  int descriptor() const { return event_.get(); }

 private:
  FileDescriptor event_;
};

// Used by one thread at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `into`; fewer bytes come only at the end. Throws ResourceError (kInput: cannot be read,
  // or the command failed; kCorruptFile: damaged gzip or zstd data) that names the file, and Error
  // with kCancelled when the StopEvent was set while it waited for a command.
  virtual size_t read(std::span<char> into) = 0;
  // Leaves so many bytes out. False: there are fewer.
  virtual bool skip(uint64_t bytes);
};

struct SourceOptions {
  // A shell command (bash, with `pipefail`; sh where there is no bash) with the file as its stdin;
  // what it writes to its stdout is read. As with Paddle, it gets a file whose name ends with ".gz"
  // or ".zst" unpacked, and any other as it is. Empty, or "cat": the file itself. When it fails,
  // read() throws at its end. A source that is destroyed early ends the command with what it
  // started: SIGTERM, and SIGKILL a second later.
  std::string pipe_command = {};
  // Must outlive the source.
  const StopEvent* stop = nullptr;
};

// Several gzip members or zstd frames one after the other are one text. Throws ResourceError
// (kInput) when the file cannot be opened.
std::unique_ptr<ByteSource> open_source(const std::filesystem::path& path,
                                        const SourceOptions& options = {});

}  // namespace fleet::fluid::data
