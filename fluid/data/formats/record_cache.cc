#include "fluid/data/formats/record_cache.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utility>

#include "base/archive.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/process/file_descriptor.h"
#include "base/strings.h"

namespace fleet::fluid::data {
namespace {

constexpr std::array<char, 8> kMagic = {'F', 'L', 'E', 'E', 'T', 'R', 'E', 'C'};
constexpr uint32_t kVersion = 1;
constexpr size_t kAlignment = 64;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t zero = 0;
};
static_assert(sizeof(Header) == 16);

// The last bytes of the file.
struct Trailer {
  uint64_t index_at = 0;
  uint64_t index_bytes = 0;
  uint32_t index_crc = 0;
  uint32_t version = kVersion;
  std::array<char, 8> magic = kMagic;
};
static_assert(sizeof(Trailer) == 32);

struct ArrayEntry {
  uint64_t at = 0;
  uint64_t count = 0;
  uint32_t crc = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(at, count, crc);
  }
};

struct SlotEntry {
  std::string name;
  uint8_t type = 0;
  bool sequence = false;
  int64_t width = 0;
  std::vector<int64_t> dims;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, type, sequence, width, dims);
  }
};

struct GroupEntry {
  int64_t records = 0;
  std::vector<ArrayEntry> ends;    // of each slot; empty ones for slots with a width
  std::vector<ArrayEntry> values;  // of each slot
  template <class Archive>
  void serialize(Archive& archive) {
    archive(records, ends, values);
  }
};

struct Index {
  std::vector<SlotEntry> slots;
  std::vector<GroupEntry> groups;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(slots, groups);
  }
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

[[noreturn]] void throw_unwritable(const std::filesystem::path& path, const std::string& got) {
  throw_error(ErrorCode::kInput, {.what = "the record cache cannot be written",
                                  .where = "file " + path.string(),
                                  .got = got,
                                  .fix = "check the folder, its permissions and the free space"});
}

size_t value_size(SlotType type) {
  return type == SlotType::kId ? sizeof(uint64_t) : sizeof(float);
}

}  // namespace

class CacheWriter::Impl {
 public:
  Impl(std::filesystem::path path, const Slots& slots, CacheWriterOptions options)
      : path_(std::move(path)),
        options_(options),
        files_(options.files != nullptr ? *options.files : system_files()),
        pending_(slots) {
    options_.group_records = std::max<int64_t>(1, options_.group_records);
    for (const SlotSpec& slot : *slots) {
      index_.slots.push_back(
          {slot.name, static_cast<uint8_t>(slot.type), slot.sequence, slot.width, slot.dims});
    }
    std::error_code error;
    file_ = files_.create(folder() / ("." + path_.filename().string() + "."), error);
    if (error || file_ == nullptr) throw_unwritable(path_, error.message());
    write(bytes_of(Header()));
  }
  ~Impl() {
    if (file_ == nullptr) return;
    const std::filesystem::path name = file_->path();
    file_.reset();
    static_cast<void>(files_.remove(name));
  }

  void append(RecordRange range) {
    if (file_ == nullptr) refuse_finished();
    while (range.begin < range.end) {
      const int64_t room = options_.group_records - pending_.records();
      const int64_t end = std::min(range.end, range.begin + room);
      pending_.append({range.batch, range.begin, end});
      range.begin = end;
      if (pending_.records() == options_.group_records) write_group();
    }
  }

  void finish() {
    if (file_ == nullptr) refuse_finished();
    if (pending_.records() > 0) write_group();
    align();
    const std::vector<std::byte> index = encode(index_);
    const Trailer trailer = {
        .index_at = at_, .index_bytes = index.size(), .index_crc = crc32c(index)};
    write(index);
    write(bytes_of(trailer));
    expect(file_->sync());
    expect(files_.rename(file_->path(), path_));
    file_.reset();
    expect(files_.sync_folder(folder()));
  }

 private:
  std::filesystem::path folder() const {
    return path_.has_parent_path() ? path_.parent_path() : ".";
  }
  [[noreturn]] void refuse_finished() const {
    throw_error(ErrorCode::kPrecondition, {.what = "the record cache is finished",
                                           .where = "file " + path_.string(),
                                           .fix = "write another file"});
  }
  void expect(const std::error_code& error) const {
    if (error) throw_unwritable(path_, error.message());
  }
  void write(std::span<const std::byte> bytes) {
    expect(file_->append(bytes));
    at_ += bytes.size();
  }
  void align() {
    static constexpr std::array<std::byte, kAlignment> kZeros{};
    write(std::span(kZeros).first((kAlignment - at_ % kAlignment) % kAlignment));
  }

  template <class T>
  ArrayEntry write_array(const GrowingArray<T>& array) {
    align();
    const std::span<const std::byte> bytes = std::as_bytes(array.values());
    const ArrayEntry entry = {at_, array.size(), crc32c(bytes)};
    write(bytes);
    return entry;
  }

  void write_group() {
    GroupEntry& group = index_.groups.emplace_back();
    group.records = pending_.records();
    for (size_t slot = 0; slot < index_.slots.size(); ++slot) {
      const Column& column = pending_.column(slot);
      group.ends.push_back(index_.slots[slot].width == 0 ? write_array(column.ends) : ArrayEntry());
      const bool ids = index_.slots[slot].type == static_cast<uint8_t>(SlotType::kId);
      group.values.push_back(ids ? write_array(column.ids) : write_array(column.floats));
    }
    pending_.clear();
  }

  std::filesystem::path path_;
  CacheWriterOptions options_;
  FileSystem& files_;
  RecordBatch pending_;
  Index index_;
  std::unique_ptr<OutputFile> file_;
  uint64_t at_ = 0;
};

CacheWriter::CacheWriter(std::filesystem::path path, const Slots& slots, CacheWriterOptions options)
    : impl_(std::make_unique<Impl>(std::move(path), slots, options)) {}

CacheWriter::~CacheWriter() = default;

void CacheWriter::append(const RecordRange& range) {
  impl_->append(range);
}

void CacheWriter::finish() {
  impl_->finish();
}

struct RecordCache::Group {
  Group(size_t n, int64_t first_record, GroupEntry of_file, RecordBatch records)
      : number(n), first(first_record), entry(std::move(of_file)), batch(std::move(records)) {}

  size_t number;
  int64_t first;
  GroupEntry entry;
  RecordBatch batch;
  std::once_flag checked;
};

namespace {

// What a file says of itself, held against its bytes.
class CacheFile {
 public:
  CacheFile(const std::filesystem::path& path, const std::byte* memory, size_t bytes)
      : path_(path), memory_(memory), bytes_(bytes) {}

  [[noreturn]] void corrupt(const std::string& entry, std::string expected, std::string got) const {
    throw_error(ErrorCode::kCorruptFile, {.what = "this is not a whole record cache",
                                          .where = str_cat("file ", path_.string(), ", ", entry),
                                          .expected = std::move(expected),
                                          .got = std::move(got),
                                          .fix = "write the cache anew from its text files"});
  }

  Index index() const {
    Header header;
    Trailer trailer;
    if (bytes_ < sizeof header + sizeof trailer) {
      corrupt("header", "a header and a trailer", str_cat(bytes_, " bytes"));
    }
    std::memcpy(&header, memory_, sizeof header);
    std::memcpy(&trailer, memory_ + bytes_ - sizeof trailer, sizeof trailer);
    if (header.magic != kMagic) corrupt("header", "FLEETREC", "another beginning");
    if (header.version > kVersion) {
      throw_error(ErrorCode::kNotSupported,
                  {.what = "the record cache is of a newer version",
                   .where = str_cat("file ", path_.string(), ", header"),
                   .expected = str_cat("version ", kVersion, " at most"),
                   .got = str_cat("version ", header.version),
                   .fix = "write it anew with this build, or use the build that wrote it"});
    }
    const uint64_t before_trailer = bytes_ - sizeof trailer;
    if (header.version == 0 || trailer.magic != kMagic || trailer.version != header.version ||
        trailer.index_at > before_trailer ||
        trailer.index_bytes != before_trailer - trailer.index_at) {
      corrupt("trailer", "where the index is", "other bytes: the file is cut or damaged");
    }
    const std::span<const std::byte> bytes(memory_ + trailer.index_at, trailer.index_bytes);
    if (crc32c(bytes) != trailer.index_crc) {
      corrupt("index", "bytes of their checksum", "others");
    }
    Result<Index> index = decode<Index>(bytes, "index");
    if (!index.ok()) corrupt("index", "an index", index.status().text().what);
    return std::move(index).value();
  }

  Slots slots(const Index& index) const {
    std::vector<SlotSpec> slots;
    for (const SlotEntry& slot : index.slots) {
      if (slot.type > static_cast<uint8_t>(SlotType::kFloat)) {
        corrupt(str_cat("slot '", slot.name, "'"), "a type of 0 or 1", str_cat(int{slot.type}));
      }
      slots.push_back(
          {slot.name, static_cast<SlotType>(slot.type), slot.width, slot.sequence, slot.dims});
    }
    try {
      return make_slots(std::move(slots));
    } catch (const Error& error) {
      corrupt("slots of the index", "slots that can be", error.text().what);
    }
  }

  RecordBatch batch(const Slots& slots, const GroupEntry& group, size_t number) const {
    if (group.ends.size() != slots->size() || group.values.size() != slots->size() ||
        group.records < 1 || group.records > int64_t{1} << 40) {
      corrupt(str_cat("group ", number), str_cat(slots->size(), " slots, 1 record or more"),
              str_cat(group.values.size(), " slots, ", group.records, " records"));
    }
    std::vector<Column> columns(slots->size());
    for (size_t i = 0; i < columns.size(); ++i) {
      const SlotSpec& slot = (*slots)[i];
      const ArrayEntry& values = group.values[i];
      const std::string entry = entry_name(number, slot);
      const auto records = static_cast<uint64_t>(group.records);
      if (slot.width > 0 && (values.count % records != 0 ||
                             values.count / records != static_cast<uint64_t>(slot.width))) {
        corrupt(entry, str_cat(slot.width, " values a record"), str_cat(values.count, " in all"));
      }
      if (slot.width == 0 && group.ends[i].count != records) {
        corrupt(entry, str_cat(records, " ends"), str_cat(group.ends[i].count));
      }
      if (slot.width == 0) show(group.ends[i], entry, columns[i].ends);
      if (slot.type == SlotType::kId) show(values, entry, columns[i].ids);
      if (slot.type == SlotType::kFloat) show(values, entry, columns[i].floats);
    }
    return RecordBatch::borrow(slots, group.records, std::move(columns));
  }

  void check(const Slots& slots, const GroupEntry& group, const RecordBatch& batch,
             size_t number) const {
    for (size_t i = 0; i < slots->size(); ++i) {
      const SlotSpec& slot = (*slots)[i];
      const std::string entry = entry_name(number, slot);
      check(group.values[i], value_size(slot.type), entry);
      if (slot.width > 0) continue;
      check(group.ends[i], sizeof(uint64_t), entry);
      const auto ends = batch.column(i).ends.values();
      if (!std::is_sorted(ends.begin(), ends.end()) || ends.back() != group.values[i].count) {
        corrupt(entry, "ascending ends of records", "others");
      }
    }
  }

 private:
  static std::string entry_name(size_t number, const SlotSpec& slot) {
    return str_cat("group ", number, " slot '", slot.name, "'");
  }

  template <class T>
  void show(const ArrayEntry& array, const std::string& entry, GrowingArray<T>& out) const {
    if (array.at % kAlignment != 0 || array.at > bytes_ ||
        array.count > (bytes_ - array.at) / sizeof(T)) {
      corrupt(entry, "values inside the file", str_cat(array.count, " from byte ", array.at));
    }
    out.borrow(reinterpret_cast<const T*>(memory_ + array.at), array.count);
  }

  void check(const ArrayEntry& array, size_t size, const std::string& entry) const {
    const std::span<const std::byte> bytes(memory_ + array.at, array.count * size);
    if (crc32c(bytes) != array.crc) corrupt(entry, "bytes of their checksum", "others");
  }

  const std::filesystem::path& path_;
  const std::byte* memory_;
  size_t bytes_;
};

}  // namespace

RecordCache::RecordCache(const std::filesystem::path& path) : path_(path) {
  map(path);
  read_index();
}

RecordCache::~RecordCache() = default;

void RecordCache::map(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& got) {
    throw_error(ErrorCode::kInput, {.what = "the record cache cannot be read",
                                    .where = "file " + path.string(),
                                    .expected = "a readable file",
                                    .got = got,
                                    .fix = "check the path and its permissions"});
  };
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("no regular file");
  bytes_ = static_cast<size_t>(status.st_size);
  if (bytes_ == 0) return;
  void* memory = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) refuse(std::strerror(errno));
  memory_ = std::shared_ptr<const std::byte>(
      static_cast<const std::byte*>(memory),
      [bytes = bytes_](const std::byte* p) { ::munmap(const_cast<std::byte*>(p), bytes); });
}

void RecordCache::read_index() {
  const CacheFile file(path_, memory_.get(), bytes_);
  Index index = file.index();
  slots_ = file.slots(index);
  for (size_t i = 0; i < index.groups.size(); ++i) {
    RecordBatch batch = file.batch(slots_, index.groups[i], i);
    const int64_t records = batch.records();
    if (records_ > (int64_t{1} << 50)) {
      file.corrupt(str_cat("group ", i), "records that can be counted", "too many");
    }
    groups_.push_back(
        std::make_unique<Group>(i, records_, std::move(index.groups[i]), std::move(batch)));
    records_ += records;
  }
}

void RecordCache::check_group(const Group& group) const {
  CacheFile(path_, memory_.get(), bytes_).check(slots_, group.entry, group.batch, group.number);
}

const RecordBatch& RecordCache::group(int64_t number) const {
  if (number < 0 || number >= groups()) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "the record cache has no such group",
                                              .where = "file " + path_.string(),
                                              .expected = str_cat("0 to ", groups() - 1),
                                              .got = std::to_string(number),
                                              .fix = "ask for one that there is"});
  }
  Group& group = *groups_[static_cast<size_t>(number)];
  std::call_once(group.checked, [&] { check_group(group); });
  return group.batch;
}

RecordRange RecordCache::range_of(int64_t record) const {
  if (record < 0 || record >= records_) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "the record cache has no such record",
                                              .where = "file " + path_.string(),
                                              .expected = str_cat("0 to ", records_ - 1),
                                              .got = std::to_string(record),
                                              .fix = "ask for one that there is"});
  }
  const auto above = std::upper_bound(
      groups_.begin(), groups_.end(), record,
      [](int64_t wanted, const std::unique_ptr<Group>& group) { return wanted < group->first; });
  const Group& found = **(above - 1);
  const RecordBatch& batch = group(static_cast<int64_t>(found.number));
  return {&batch, record - found.first, record - found.first + 1};
}

std::vector<Tensor> RecordCache::read(std::span<const int64_t> records) const {
  std::vector<RecordRange> ranges;
  ranges.reserve(records.size());
  for (const int64_t record : records) ranges.push_back(range_of(record));
  return tensors_of(ranges);
}

}  // namespace fleet::fluid::data
