#include "fluid/tables/table_pieces.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/tables/store/buckets.h"

namespace fleet::fluid::tables {
namespace {

constexpr char kMagic[9] = "FLEETTBL";
constexpr char kPiece[5] = "PIEC";
constexpr char kEnd[5] = "ENDS";
constexpr size_t kFixedBytes = 20;  // magic, version, bytes, checksum
constexpr uint32_t kMostHeaderBytes = 1 << 20;
constexpr size_t kMostStates = 64;
constexpr size_t kMostFloats = size_t{1} << 16;
constexpr size_t kHeadChecksumAt = kPieceHeadBytes - sizeof(uint32_t);

class Writer {
 public:
  template <class T>
  void number(T value) {
    const auto* const begin = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), begin, begin + sizeof value);
  }
  void text(const std::string& text) {
    number(static_cast<uint32_t>(text.size()));
    raw(text.data(), text.size());
  }
  void raw(const char* text, size_t n) {
    const auto* const begin = reinterpret_cast<const std::byte*>(text);
    bytes_.insert(bytes_.end(), begin, begin + n);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// What is read behind the end is zeros, and ok() is then false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T number() {
    T value{};
    if (!has(sizeof value)) return value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  std::string text() {
    const auto n = number<uint32_t>();
    if (!has(n)) return {};
    std::string text(reinterpret_cast<const char*>(bytes_.data()), n);
    bytes_ = bytes_.subspan(n);
    return text;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }

 private:
  bool has(size_t n) {
    ok_ = ok_ && n <= bytes_.size();
    return ok_;
  }
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

std::array<std::byte, kPieceHeadBytes> encode_head(const char (&magic)[5], const PieceHead& head) {
  Writer out;
  out.raw(magic, 4);
  out.number(head.number);
  out.number(head.first);
  out.number(head.end);
  out.number(head.rows);
  out.number(head.waiting);
  out.number(head.gone);
  out.number(head.body_checksum);
  std::array<std::byte, kPieceHeadBytes> bytes{};
  const std::vector<std::byte> written = out.take();
  std::copy(written.begin(), written.end(), bytes.begin());
  const uint32_t checksum = crc32c(std::span(bytes).first(kHeadChecksumAt));
  std::memcpy(bytes.data() + kHeadChecksumAt, &checksum, sizeof checksum);
  return bytes;
}

TableFileInfo decode_info(Reader& in) {
  TableFileInfo info;
  info.delta = in.number<uint32_t>() != 0;
  info.part = in.number<uint32_t>();
  info.parts = in.number<uint32_t>();
  info.clock = in.number<uint32_t>();
  info.delta_number = in.number<uint64_t>();
  info.seed = in.number<uint64_t>();
  info.table = in.text();
  info.width = in.number<uint64_t>();
  const auto fields = in.number<uint32_t>();
  info.fields = {(fields & 1) != 0, (fields & 2) != 0, (fields & 4) != 0};
  const auto states = in.number<uint32_t>();
  for (uint32_t i = 0; i < std::min<size_t>(states, kMostStates) && in.ok(); ++i) {
    RowState state;
    state.name = in.text();
    state.width = in.number<uint64_t>();
    state.initial = in.number<float>();
    info.states.push_back(std::move(state));
  }
  return info;
}

bool is_sensible(const TableFileInfo& info) {
  size_t floats = std::min(info.width, kMostFloats + 1);
  for (const RowState& state : info.states) floats += std::min(state.width, kMostFloats + 1);
  return info.width > 0 && floats <= kMostFloats && info.part < info.parts;
}

}  // namespace

std::vector<std::byte> encode_table_header(const TableFileInfo& info) {
  Writer rest;
  rest.number(uint32_t{info.delta});
  rest.number(info.part);
  rest.number(info.parts);
  rest.number(info.clock);
  rest.number(info.delta_number);
  rest.number(info.seed);
  rest.text(info.table);
  rest.number(uint64_t{info.width});
  rest.number(uint32_t{info.fields.seen} | uint32_t{info.fields.count} << 1 |
              uint32_t{info.fields.score} << 2);
  rest.number(static_cast<uint32_t>(info.states.size()));
  for (const RowState& state : info.states) {
    rest.text(state.name);
    rest.number(uint64_t{state.width});
    rest.number(state.initial);
  }
  const std::vector<std::byte> bytes = rest.take();
  Writer out;
  out.raw(kMagic, 8);
  out.number(kTableFileVersion);
  out.number(static_cast<uint32_t>(bytes.size()));
  out.number(crc32c(bytes));
  std::vector<std::byte> header = out.take();
  header.insert(header.end(), bytes.begin(), bytes.end());
  return header;
}

std::array<std::byte, kPieceHeadBytes> encode_piece_head(const PieceHead& head) {
  return encode_head(kPiece, head);
}

std::array<std::byte, kPieceHeadBytes> encode_table_end(const PieceHead& totals) {
  return encode_head(kEnd, totals);
}

TableFileReader::TableFileReader(const std::filesystem::path& file, FileSystem& files)
    : path_(file) {
  std::error_code error;
  file_ = files.open(file, error);
  if (file_ == nullptr) {
    throw_error(ErrorCode::kInput, {.what = "a table's file cannot be opened",
                                    .where = str_cat("file ", file.string()),
                                    .expected = "a file that this user may read",
                                    .got = error.message(),
                                    .fix = "check the path and its permissions"});
  }
  left_ = bytes_ = file_->size();
  read_header();
  row_bytes_ = sizeof(uint64_t) + info_.layout().bytes();
}

void TableFileReader::fail(const std::string& entry, const std::string& what) const {
  throw_error(ErrorCode::kCorruptFile,
              {.what = what,
               .where = str_cat("file ", path_.string(), ", ", entry),
               .expected = "a growing table's file, whole and as it was written",
               .got = "other bytes",
               .fix = "take another copy of the file, or an older one"});
}

void TableFileReader::fail_piece(const std::string& what) const {
  fail(str_cat("piece ", head_.number), what);
}

void TableFileReader::read_bytes(std::span<std::byte> into, const std::string& entry) {
  if (into.size() > left_) fail(entry, "the file ends too early");
  left_ -= into.size();
  while (!into.empty()) {
    size_t got = 0;
    if (const std::error_code error = file_->read(into, got)) {
      throw_error(ErrorCode::kInput, {.what = "a table's file cannot be read",
                                      .where = str_cat("file ", path_.string(), ", ", entry),
                                      .expected = "bytes of the file",
                                      .got = error.message(),
                                      .fix = "check the disk"});
    }
    if (got == 0) fail(entry, "the file ends too early");
    into = into.subspan(got);
  }
}

void TableFileReader::read_header() {
  const std::string entry = "header";
  std::array<std::byte, kFixedBytes> fixed{};
  read_bytes(fixed, entry);
  if (!begins_with(fixed, kMagic)) fail(entry, "this is not the file of a growing table");
  Reader in(std::span<const std::byte>(fixed).subspan(8));
  const auto version = in.number<uint32_t>();
  const auto bytes = in.number<uint32_t>();
  const auto checksum = in.number<uint32_t>();
  if (version != kTableFileVersion) {
    fail(entry,
         str_cat("the file has form ", version, "; this program reads form ", kTableFileVersion));
  }
  if (bytes > kMostHeaderBytes) fail(entry, "the header is too long");
  std::vector<std::byte> rest(std::min<uint64_t>(bytes, left_));
  read_bytes(rest, entry);
  if (rest.size() != bytes || crc32c(rest) != checksum) fail(entry, "the checksum does not fit");
  Reader fields(rest);
  info_ = decode_info(fields);
  if (!fields.at_end() || !is_sensible(info_)) fail(entry, "the header makes no sense");
}

void TableFileReader::check_head(const PieceHead& head) const {
  if (head.number != totals_.number) fail_piece(str_cat("it stands at place ", totals_.number));
  if (head.first < totals_.end || head.end <= head.first || head.end > kBuckets) {
    fail_piece("its buckets do not follow those before");
  }
  const bool fits = head.rows <= left_ / row_bytes_ && head.waiting <= left_ / kWaitingIdBytes &&
                    head.gone <= left_ / kGoneIdBytes;
  if (!fits || body_bytes() > left_) fail_piece("it is longer than the file");
}

void TableFileReader::check_end(const PieceHead& totals) const {
  const bool same = totals.number == totals_.number && totals.rows == totals_.rows &&
                    totals.waiting == totals_.waiting && totals.gone == totals_.gone;
  if (!same) fail("end", "pieces are missing");
  if (left_ > 0) fail("end", "there are bytes behind the end");
}

bool TableFileReader::next(PieceHead& head) {
  std::array<std::byte, kPieceHeadBytes> bytes{};
  const std::string entry = str_cat("head of piece ", totals_.number);
  read_bytes(bytes, entry);
  Reader in(std::span<const std::byte>(bytes).subspan(4));
  head_.number = in.number<uint32_t>();
  head_.first = in.number<uint32_t>();
  head_.end = in.number<uint32_t>();
  head_.rows = in.number<uint64_t>();
  head_.waiting = in.number<uint64_t>();
  head_.gone = in.number<uint64_t>();
  head_.body_checksum = in.number<uint32_t>();
  const auto checksum = in.number<uint32_t>();
  if (crc32c(std::span<const std::byte>(bytes).first(kHeadChecksumAt)) != checksum) {
    fail(entry, "the checksum does not fit");
  }
  if (begins_with(bytes, kEnd)) {
    check_end(head_);
    return false;
  }
  if (!begins_with(bytes, kPiece)) fail(entry, "no piece begins here");
  check_head(head_);
  ++totals_.number;
  totals_.end = head_.end;
  totals_.rows += head_.rows;
  totals_.waiting += head_.waiting;
  totals_.gone += head_.gone;
  head = head_;
  return true;
}

uint64_t TableFileReader::body_bytes() const {
  return head_.rows * row_bytes_ + head_.waiting * kWaitingIdBytes + head_.gone * kGoneIdBytes;
}

void TableFileReader::read(std::vector<std::byte>& body) {
  body.resize(body_bytes());
  read_bytes(body, str_cat("piece ", head_.number));
  if (crc32c(body) != head_.body_checksum) fail_piece("the checksum does not fit");
}

void TableFileReader::skip() {
  // The position is counted from the file's begin.
  left_ -= body_bytes();
  if (const std::error_code error = file_->seek(file_->size() - left_)) {
    throw_error(ErrorCode::kInput, {.what = "a table's file cannot be read",
                                    .where = str_cat("file ", path_.string()),
                                    .expected = "bytes of the file",
                                    .got = error.message(),
                                    .fix = "check the disk"});
  }
}

}  // namespace fleet::fluid::tables
