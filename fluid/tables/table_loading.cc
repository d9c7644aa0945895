#include "fluid/tables/table_loading.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/store/row_store.h"
#include "fluid/tables/waiting_ids_impl.h"

namespace fleet::fluid::tables {
namespace {

[[noreturn]] void fail_files(const std::string& what, const std::string& where,
                             const std::string& expected, const std::string& got) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = what,
               .where = where,
               .expected = expected,
               .got = got,
               .fix = "give every file of one save, each once, for a table of the same form"});
}

std::string form_of(size_t width, const std::vector<RowState>& states) {
  std::string text = str_cat("width ", width);
  for (const RowState& state : states) text += str_cat(", ", state.name, ' ', state.width);
  return text;
}

// Without states on one side, those of the other stand apart: servers of workers that train alone
// have none.
bool fits(const TableFileInfo& info, const TableOptions& options) {
  if (info.width != options.width) return false;
  if (info.states.empty() || options.states.empty()) return true;
  const auto same = [](const RowState& a, const RowState& b) {
    return a.name == b.name && a.width == b.width;
  };
  return std::equal(info.states.begin(), info.states.end(), options.states.begin(),
                    options.states.end(), same);
}

[[noreturn]] void fail_form(const TableFileReader& from, const TableOptions& options) {
  fail_files("a file holds rows of another form than the table's",
             str_cat("file ", from.path().string(), ", growing table '", options.name, "'"),
             form_of(options.width, options.states),
             form_of(from.info().width, from.info().states));
}

}  // namespace

RowConversion::RowConversion(const TableFileReader& from, const TableOptions& to)
    : from_(from.info().layout()), to_(to.width, to.states, to.fields), clock_(from.info().clock) {
  const TableFileInfo& info = from.info();
  if (!fits(info, to)) fail_form(from, to);
  if (!info.states.empty()) return;
  for (const RowState& state : to.states) {
    states_.insert(states_.end(), state.width, state.initial);
  }
}

void RowConversion::convert(const std::byte* from, std::byte* to) const {
  from += sizeof(uint64_t);
  if (from_.fields() == to_.fields() && from_.floats() == to_.floats()) {
    std::memcpy(to, from, to_.bytes());
    return;
  }
  const size_t floats = std::min(from_.floats(), to_.floats());
  std::memcpy(to_.values(to), from_.values(from), floats * sizeof(float));
  std::copy(states_.begin(), states_.end(), to_.values(to) + floats);
  to_.set_seen(to, from_.fields().seen ? from_.seen(from) : clock_);
  to_.set_count(to, from_.count(from));
  to_.set_score(to, from_.show(from), from_.click(from));
}

void check_piece_order(const TableFileReader& file, const PieceHead& head,
                       std::span<const std::byte> ids, size_t bytes) {
  uint32_t bucket = head.first;
  uint64_t key = 0;
  for (size_t at = 0; at < ids.size(); at += bytes) {
    const uint64_t next = id_at(ids.data() + at);
    const uint32_t in = bucket_of(next);
    const bool follows = in > bucket || (in == bucket && (at == 0 || next > key));
    if (!follows || in >= head.end) {
      file.fail_piece(str_cat("id ", next, " is not where it belongs"));
    }
    bucket = in;
    key = next;
  }
}

TableLoader::TableLoader(const TableOptions& options, std::span<const std::filesystem::path> files,
                         BucketFilter wanted, FileSystem& disk)
    : options_(options),
      wanted_(std::move(wanted)),
      rows_(std::make_unique<RowStore>(
          RowLayout(options.width, options.states, options.fields).bytes(), options.deltas)),
      waiting_(std::make_unique<RowStore>(kWaitingIdBytes - sizeof(uint64_t))) {
  if (files.empty()) {
    fail_files("a table cannot be loaded from no file", options.name, "1 file or more", "none");
  }
  for (const std::filesystem::path& file : files) {
    TableFileReader reader(file, disk);
    read(reader);
  }
  check_parts();
  body_ = {};
}

TableLoader::~TableLoader() = default;

uint64_t TableLoader::rows() const {
  return rows_->size();
}

void TableLoader::read(TableFileReader& file) {
  const RowConversion conversion(file, options_);
  check_part(file);
  clock_ = std::max(clock_, file.info().clock);
  PieceHead head;
  while (file.next(head)) {
    if (wants(head)) {
      file.read(body_);
      take(file, head, conversion);
    } else {
      file.skip();
    }
  }
}

LoadedTable TableLoader::put_into(GrowingTable& table) {
  if (table.is_being_saved()) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "a table cannot be loaded while it is saved",
                 .where = str_cat("growing table '", table.options().name, "'"),
                 .expected = "no TableSaver of the table",
                 .got = "one",
                 .fix = "destroy the saver first"});
  }
  table.rows_ = std::move(rows_);
  table.waiting_ = std::move(waiting_);
  table.settled_ = settled_;
  table.gone_.clear();
  table.clock_ = std::max(table.clock_, clock_);
  table.delta_number_ = *std::max_element(numbers_.begin(), numbers_.end());
  return {table.size(), std::move(numbers_)};
}

void TableLoader::check_part(const TableFileReader& file) {
  const TableFileInfo& info = file.info();
  const std::string where = str_cat("file ", file.path().string());
  if (info.delta) fail_files("a delta is no whole table", where, "a saved table", "a delta");
  if (present_.empty()) {
    present_.resize(info.parts);
    numbers_.resize(info.parts);
  }
  if (info.parts != present_.size()) {
    fail_files("files of different saves are mixed", where, str_cat(present_.size(), " parts"),
               str_cat("one of ", info.parts));
  }
  if (present_[info.part]) {
    fail_files("two files are the same part", where, "each part once",
               str_cat("part ", info.part, " twice"));
  }
  present_[info.part] = true;
  numbers_[info.part] = info.delta_number;
}

void TableLoader::check_parts() const {
  const auto missing = std::find(present_.begin(), present_.end(), false);
  if (missing == present_.end()) return;
  fail_files("a file of a saved table is missing", options_.name,
             str_cat(present_.size(), " files"),
             str_cat("none that is part ", missing - present_.begin()));
}

bool TableLoader::wants(const PieceHead& head) const {
  if (!wanted_) return true;
  for (uint32_t b = head.first; b < head.end; ++b) {
    if (wanted_(b)) return true;
  }
  return false;
}

// Ids of `bytes` each, into a store; put(from, to) writes what is behind the key.
template <class Put>
void TableLoader::insert_all(const TableFileReader& file, const PieceHead& head,
                             std::span<const std::byte> ids, size_t bytes, RowStore& store,
                             const Put& put) {
  check_piece_order(file, head, ids, bytes);
  for (size_t at = 0; at < ids.size();) {
    const uint32_t bucket = bucket_of(id_at(ids.data() + at));
    size_t end = at;
    while (end < ids.size() && bucket_of(id_at(ids.data() + end)) == bucket) {
      end += bytes;
    }
    if (wanted_ && !wanted_(bucket)) {
      at = end;
      continue;
    }
    store.reserve(bucket, static_cast<uint32_t>((end - at) / bytes));
    for (; at < end; at += bytes) {
      const uint64_t key = id_at(ids.data() + at);
      bool made = false;
      const RowPlace place = store.insert(key, made);
      if (!made) file.fail_piece(str_cat("another file has id ", key, ", too"));
      put(ids.data() + at, store.row(place));
    }
  }
}

void TableLoader::take(const TableFileReader& file, const PieceHead& head,
                       const RowConversion& conversion) {
  if (head.gone > 0) file.fail_piece("a whole table has no ids that are gone");
  const size_t bytes = head.rows * conversion.bytes();
  const std::span<const std::byte> body = body_;
  insert_all(file, head, body.first(bytes), conversion.bytes(), *rows_,
             [&](const std::byte* from, std::byte* to) { conversion.convert(from, to); });
  insert_all(file, head, body.subspan(bytes), kWaitingIdBytes, *waiting_,
             [&](const std::byte* from, std::byte* to) {
               std::memcpy(to, from + sizeof(uint64_t), sizeof(uint64_t));
               settled_ += first_word(to) == kSettled ? 1 : 0;
             });
}

LoadedTable load_table(GrowingTable& table, std::span<const std::filesystem::path> files,
                       const BucketFilter& wanted, FileSystem& disk) {
  return TableLoader(table.options(), files, wanted, disk).put_into(table);
}

}  // namespace fleet::fluid::tables
