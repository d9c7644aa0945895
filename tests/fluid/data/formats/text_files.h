// Files in a folder of a test's own, and what tests ask of records.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "fluid/data/formats/parsers/parser.h"

namespace fleet::fluid::data {

class TextFiles : public ::testing::Test {
 protected:
  TextFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "fleet_formats_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~TextFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return std::move(text).str();
  }

  std::filesystem::path folder_;
};

inline std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// The whole text of the error that a call throws; empty when it throws none.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// What a parser makes of a text, which is copied so that a sanitizer sees what is read behind it.
struct Parsed {
  explicit Parsed(const RecordParser& parser, std::string_view text, std::string_view header = "")
      : batch(parser.slots()) {
    TextBuffer buffer;
    buffer.assign(text);
    lines = parser.parse(buffer.text(), header, batch, bad);
  }
  std::vector<uint64_t> ids(size_t slot, int64_t record) const {
    const auto values = batch.ids(slot, record);
    return {values.begin(), values.end()};
  }
  std::vector<float> floats(size_t slot, int64_t record) const {
    const auto values = batch.floats(slot, record);
    return {values.begin(), values.end()};
  }
  std::string reason(size_t i) const { return bad.kept().at(i).reason; }

  RecordBatch batch;
  BadLines bad;
  uint64_t lines = 0;
};

}  // namespace fleet::fluid::data
