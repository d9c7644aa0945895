#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/formats/streams/sources_impl.h"

namespace fleet::fluid::data {
namespace {

constexpr size_t kPackedBlock = size_t{1} << 17;
constexpr int kGzipWindow = 15 + 16;  // the largest; with gzip's header and checksum

}  // namespace

PackedInput::PackedInput(std::unique_ptr<ByteSource> source, std::filesystem::path path)
    : source_(std::move(source)), path_(std::move(path)), block_(kPackedBlock) {}

bool PackedInput::fill() {
  if (at_ == size_) {
    size_ = source_->read(block_);
    at_ = 0;
  }
  return at_ < size_;
}

void PackedInput::corrupt(std::string_view format, std::string got) const {
  throw_error(ErrorCode::kCorruptFile, {.what = "the file cannot be unpacked to its end",
                                        .where = "file " + path_.string(),
                                        .expected = str_cat("whole ", format, " data"),
                                        .got = std::move(got),
                                        .fix = "fetch or write the file anew"});
}

GzipSource::GzipSource(PackedInput input) : input_(std::move(input)) {
  if (inflateInit2(&stream_, kGzipWindow) != Z_OK) throw std::bad_alloc();
}

GzipSource::~GzipSource() {
  inflateEnd(&stream_);
}

size_t GzipSource::read(std::span<char> into) {
  stream_.next_out = reinterpret_cast<Bytef*>(into.data());
  stream_.avail_out = static_cast<uInt>(into.size());
  while (stream_.avail_out > 0) {
    if (!input_.fill()) {
      if (inside_) input_.corrupt("gzip", "a file that is cut");
      break;
    }
    if (!inside_) inflateReset(&stream_);
    inside_ = true;
    const std::span<const char> rest = input_.rest();
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
    stream_.avail_in = static_cast<uInt>(rest.size());
    const int code = inflate(&stream_, Z_NO_FLUSH);
    input_.take(rest.size() - stream_.avail_in);
    if (code == Z_STREAM_END) {
      inside_ = false;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      input_.corrupt("gzip", stream_.msg != nullptr ? stream_.msg : "damaged data");
    }
  }
  return into.size() - stream_.avail_out;
}

ZstdSource::ZstdSource(PackedInput input) : input_(std::move(input)), context_(ZSTD_createDCtx()) {
  if (!context_) throw std::bad_alloc();
}

size_t ZstdSource::read(std::span<char> into) {
  ZSTD_outBuffer out = {into.data(), into.size(), 0};
  while (out.pos < out.size) {
    // A frame may still have bytes when all of its input was taken.
    const bool more = input_.fill();
    const std::span<const char> rest = input_.rest();
    ZSTD_inBuffer in = {rest.data(), rest.size(), 0};
    const size_t before = out.pos;
    if (!more && !inside_) break;
    const size_t left = ZSTD_decompressStream(context_.get(), &out, &in);
    if (ZSTD_isError(left) != 0) input_.corrupt("zstd", ZSTD_getErrorName(left));
    input_.take(in.pos);
    inside_ = left != 0;
    if (!more && inside_ && out.pos == before) input_.corrupt("zstd", "a file that is cut");
  }
  return out.pos;
}

}  // namespace fleet::fluid::data
