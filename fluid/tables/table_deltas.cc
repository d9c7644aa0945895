#include "fluid/tables/table_deltas.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/store/row_store.h"

namespace fleet::fluid::tables {
namespace {

[[noreturn]] void fail(const TableFileReader& file, std::string what, std::string expected,
                       std::string got, std::string fix) {
  throw_error(ErrorCode::kPrecondition, {.what = std::move(what),
                                         .where = str_cat("file ", file.path().string()),
                                         .expected = std::move(expected),
                                         .got = std::move(got),
                                         .fix = std::move(fix)});
}

}  // namespace

DeltaReader::DeltaReader(GrowingTable& table, std::vector<uint64_t> numbers)
    : table_(table), numbers_(std::move(numbers)) {}

void DeltaReader::check_number(const TableFileReader& file) const {
  const TableFileInfo& info = file.info();
  if (!info.delta) {
    fail(file, "a saved table is no delta", "a delta", "a whole table", "read it by load_table()");
  }
  if (info.parts != numbers_.size()) {
    fail(file, "a delta is of another set of servers", str_cat("one of ", numbers_.size()),
         str_cat("one of ", info.parts), "begin with a table that these servers saved");
  }
  const uint64_t last = numbers_[info.part];
  const std::string expected = str_cat("delta ", last + 1, " of part ", info.part);
  const std::string got = str_cat("delta ", info.delta_number);
  if (info.delta_number <= last) {
    fail(file, "a delta was read before", expected, got, "leave out deltas that the table has");
  }
  if (info.delta_number > last + 1) {
    fail(file, "a delta is missing", expected, got,
         "read the missing one first, or load a newer table");
  }
}

void DeltaReader::check_pieces(TableFileReader& file) const {
  const size_t row_bytes = sizeof(uint64_t) + file.info().layout().bytes();
  std::vector<std::byte> body;
  PieceHead head;
  while (file.next(head)) {
    if (head.waiting > 0) file.fail_piece("a delta has no ids that are counted");
    file.read(body);
    const std::span<const std::byte> bytes = body;
    check_piece_order(file, head, bytes.first(head.rows * row_bytes), row_bytes);
    check_piece_order(file, head, bytes.subspan(head.rows * row_bytes), kGoneIdBytes);
  }
}

void DeltaReader::take(const PieceHead& head, const std::vector<std::byte>& body,
                       const RowConversion& conversion, const BucketFilter& wanted) {
  RowStore& rows = *table_.rows_;
  for (uint64_t i = 0; i < head.rows; ++i) {
    const std::byte* const from = body.data() + i * conversion.bytes();
    const uint64_t key = id_at(from);
    if (wanted && !wanted(bucket_of(key))) continue;
    bool made = false;
    const RowPlace place = rows.insert(key, made);
    rows.change(place);
    rows.mark_touched(place);
    conversion.convert(from, rows.row(place));
  }
  std::vector<uint64_t> gone(head.gone);
  if (gone.empty()) return;
  std::memcpy(gone.data(), body.data() + head.rows * conversion.bytes(),
              gone.size() * sizeof(uint64_t));
  std::erase_if(gone, [&](uint64_t key) { return wanted && !wanted(bucket_of(key)); });
  table_.evict(gone);
}

void DeltaReader::read(const std::filesystem::path& file, const BucketFilter& wanted,
                       FileSystem& disk) {
  // Twice: nothing is changed until all of it was found whole.
  {
    TableFileReader first(file, disk);
    check_number(first);
    const RowConversion conversion(first, table_.options());
    check_pieces(first);
  }
  TableFileReader second(file, disk);
  check_number(second);
  const RowConversion conversion(second, table_.options());
  std::vector<std::byte> body;
  PieceHead head;
  while (second.next(head)) {
    second.read(body);
    take(head, body, conversion, wanted);
  }
  const TableFileInfo& info = second.info();
  numbers_[info.part] = info.delta_number;
  table_.set_clock(std::max(table_.clock(), info.clock));
  table_.delta_number_ = *std::min_element(numbers_.begin(), numbers_.end());
}

}  // namespace fleet::fluid::tables
