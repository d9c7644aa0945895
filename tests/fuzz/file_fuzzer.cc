// Bytes of a file, given to every reader of files. Start it with a folder of small whole files, an
// empty one among them; tests/fluid/io/every_reader_test.cc has such.
#include <filesystem>
#include <span>
#include <string>
#include <unistd.h>

#include "tests/fuzz/file_readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::filesystem::path scratch =
      std::filesystem::temp_directory_path() / ("file_fuzzer-" + std::to_string(getpid()));
  std::filesystem::create_directories(scratch);
  fleet::testing::read_in_every_format(std::as_bytes(std::span(data, size)), scratch);
  return 0;
}
