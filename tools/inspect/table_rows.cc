#include "tools/inspect/table_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/tables/table_pieces.h"

namespace fleet::inspect {
namespace {

using fluid::tables::PieceHead;
using fluid::tables::RowLayout;
using fluid::tables::TableFileReader;
using std::filesystem::path;

constexpr size_t kIdBytes = sizeof(uint64_t);

// Rows of a piece, with their ids.
struct Rows {
  const std::byte* bytes = nullptr;
  uint64_t count = 0;
};

// Calls each(head, rows) for the pieces of a file; without `bodies`, rows are not read.
template <class Each>
void each_piece(TableFileReader& file, bool bodies, const Each& each) {
  std::vector<std::byte> body;
  PieceHead head;
  while (file.next(head)) {
    if (bodies) {
      file.read(body);
    } else {
      file.skip();
    }
    each(head, Rows{body.data(), head.rows});
  }
}

// What rows hold, without states.
fluid::Tensor values_of(const RowLayout& layout, const Rows& rows) {
  const size_t bytes = layout.width() * sizeof(float);
  fluid::Tensor values(fluid::DType::kFloat32,
                       {static_cast<int64_t>(rows.count), static_cast<int64_t>(layout.width())});
  const std::byte* from = rows.bytes + kIdBytes + layout.values_at();
  for (uint64_t i = 0; i < rows.count; ++i, from += kIdBytes + layout.bytes()) {
    std::memcpy(values.raw() + i * bytes, from, bytes);
  }
  return values;
}

// Ids, and what tells other values and states.
using Fingerprints = std::vector<std::pair<uint64_t, uint64_t>>;

Fingerprints fingerprints_of(std::span<const path> files, uint64_t rows) {
  Fingerprints all;
  all.reserve(rows);
  for (const path& one : files) {
    TableFileReader file(one, system_files());
    const RowLayout layout = file.info().layout();
    each_piece(file, true, [&](const PieceHead&, const Rows& piece) {
      const std::byte* row = piece.bytes;
      for (uint64_t i = 0; i < piece.count; ++i, row += kIdBytes + layout.bytes()) {
        const auto* const values =
            reinterpret_cast<const char*>(row + kIdBytes + layout.values_at());
        all.emplace_back(fluid::tables::id_at(row),
                         xxh64({values, layout.floats() * sizeof(float)}));
      }
    });
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TableInfo table_info(const std::string& name, std::span<const path> files, bool values) {
  TableInfo info{.name = name, .states = {}, .files = {}, .values = std::nullopt};
  ValueSummarizer summarizer;
  for (const path& one : files) {
    TableFileReader file(one, system_files());
    info.files.push_back(one.filename().string());
    info.bytes += file.bytes();
    info.width = file.info().width;
    info.states.clear();
    for (const auto& state : file.info().states) {
      info.states.push_back(str_cat(state.name, " ", state.width));
    }
    const RowLayout layout = file.info().layout();
    each_piece(file, values, [&](const PieceHead& head, const Rows& rows) {
      info.rows += head.rows;
      info.counted += head.waiting;
      if (values) summarizer.add(values_of(layout, rows));
    });
  }
  if (values) info.values = summarizer.summary();
  return info;
}

RowDifference row_difference(const RowFiles& a, const RowFiles& b) {
  const Fingerprints ours = fingerprints_of(a.files, a.rows);
  const Fingerprints theirs = fingerprints_of(b.files, b.rows);
  RowDifference difference;
  auto one = ours.begin();
  auto other = theirs.begin();
  while (one != ours.end() || other != theirs.end()) {
    if (other == theirs.end() || (one != ours.end() && one->first < other->first)) {
      ++difference.only_a;
      ++one;
    } else if (one == ours.end() || other->first < one->first) {
      ++difference.only_b;
      ++other;
    } else {
      difference.others += one->second == other->second ? 0 : 1;
      ++one;
      ++other;
    }
  }
  return difference;
}

}  // namespace fleet::inspect
