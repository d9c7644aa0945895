#include "tools/inspect/table_rows.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/hash.h"
#include "fluid/tables/table_pieces.h"

namespace fleet::inspect {
namespace {

using fluid::tables::PieceHead;
using fluid::tables::TableFileReader;
using std::filesystem::path;

constexpr size_t kIdBytes = sizeof(uint64_t);

size_t bytes_of_row(const TableFileReader& file) {
  return kIdBytes + file.info().layout().bytes();
}

// Calls each(file, rows, count) for the pieces of a file: rows with their ids.
void each_piece(
    TableFileReader& file,
    const std::function<void(const TableFileReader&, const std::byte*, uint64_t)>& each) {
  std::vector<std::byte> body;
  PieceHead head;
  while (file.next(head)) {
    file.read(body);
    each(file, body.data(), head.rows);
  }
}

// What rows hold, without states.
fluid::Tensor values_of(const TableFileReader& file, const std::byte* rows, uint64_t count) {
  const auto layout = file.info().layout();
  const size_t bytes = layout.width() * sizeof(float);
  fluid::Tensor values(fluid::DType::kFloat32,
                       {static_cast<int64_t>(count), static_cast<int64_t>(layout.width())});
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* const row = rows + i * bytes_of_row(file);
    std::memcpy(values.raw() + i * bytes, row + kIdBytes + layout.values_at(), bytes);
  }
  return values;
}

// Ids, and what tells other values and states.
using Fingerprints = std::vector<std::pair<uint64_t, uint64_t>>;

Fingerprints fingerprints_of(std::span<const path> files) {
  Fingerprints all;
  for (const path& one : files) {
    TableFileReader reader(one, system_files());
    each_piece(reader, [&](const TableFileReader& file, const std::byte* rows, uint64_t count) {
      const auto layout = file.info().layout();
      for (uint64_t i = 0; i < count; ++i) {
        const std::byte* const row = rows + i * bytes_of_row(file);
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
    info.bytes += std::filesystem::file_size(one);
    info.width = file.info().width;
    info.states.clear();
    for (const auto& state : file.info().states) info.states.push_back(state.name);
    PieceHead head;
    std::vector<std::byte> body;
    while (file.next(head)) {
      info.rows += head.rows;
      info.counted += head.waiting;
      if (values) {
        file.read(body);
        summarizer.add(values_of(file, body.data(), head.rows));
      } else {
        file.skip();
      }
    }
  }
  if (values) info.values = summarizer.summary();
  return info;
}

RowDifference row_difference(std::span<const path> a, std::span<const path> b) {
  const Fingerprints ours = fingerprints_of(a);
  const Fingerprints theirs = fingerprints_of(b);
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
