#include "strategies/parameter_server/worker/rows/local_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "strategies/parameter_server/protocol/local_exchange.h"

namespace fleet::strategies {
namespace {

using fluid::tables::GrowingTable;
using fluid::tables::RowPlace;
using fluid::tables::RowStore;

constexpr uint64_t kLeastNotesToSweep = 65'536;  // notes

// Values of rows, one behind the other.
std::vector<float> values_of(const fluid::tables::SharedTable& table,
                             std::span<const uint64_t> ids) {
  std::vector<float> values(ids.size() * table.options().width);
  table.reading([&](const GrowingTable& rows) {
    rows.find(ids, values.data(), GrowingTable::Missing::kInitial);
  });
  return values;
}

// Without rows of zeros.
fluid::SelectedRows changed_rows(std::span<const uint64_t> ids, const std::vector<float>& changes,
                                 size_t width) {
  fluid::SelectedRows rows;
  rows.height = fluid::SelectedRows::kNoHeight;
  std::vector<float> values;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = changes.begin() + static_cast<std::ptrdiff_t>(i * width);
    const auto end = row + static_cast<std::ptrdiff_t>(width);
    if (std::all_of(row, end, [](float change) { return change == 0; })) continue;
    rows.rows.push_back(static_cast<int64_t>(ids[i]));
    values.insert(values.end(), row, end);
  }
  rows.value = fluid::Tensor::from(
      values, {static_cast<int64_t>(rows.rows.size()), static_cast<int64_t>(width)});
  return rows;
}

}  // namespace

LocalRows::LocalRows(std::shared_ptr<fluid::tables::SharedTable> table, Asks asks)
    : table_(std::move(table)),
      width_(table_->options().width),
      kept_width_(asks == Asks::kEachRound ? width_ : 0),
      next_sweep_(kLeastNotesToSweep) {
  make_store();
}

void LocalRows::make_store() {
  servers_ = std::make_unique<RowStore>(kept_width_ * sizeof(float) + sizeof(Note));
}

LocalRows::Note LocalRows::note_of(const std::byte* row) const {
  Note note;
  std::memcpy(&note, row + kept_width_ * sizeof(float), sizeof(note));
  return note;
}

// A row that the table has lost since, by its limit of memory, is not.
bool LocalRows::is_here(uint64_t id, const std::byte* row, const GrowingTable& table) const {
  if (row == nullptr) return false;
  const Note note = note_of(row);
  const bool asked = kept_width_ == 0 || note.round == round_;
  return asked && (note.has_row == 0 || table.contains(id));
}

// In this round.
void LocalRows::touch(uint64_t id, std::byte* row, bool has_row) {
  if (has_row && note_of(row).round != round_) touched_.push_back(id);
  const Note note{.round = round_, .has_row = has_row ? 1U : 0U};
  std::memcpy(row + kept_width_ * sizeof(float), &note, sizeof(note));
}

std::vector<bool> LocalRows::find(std::span<const uint64_t> ids, uint64_t, float* values) {
  std::vector<bool> here(ids.size());
  std::vector<uint64_t> found;
  table_->reading([&](const GrowingTable& table) {
    servers_->visit(ids, servers_->row_bytes(), [&](size_t i, std::byte* row, RowPlace) {
      here[i] = is_here(ids[i], row, table);
      if (!here[i]) return;
      touch(ids[i], row, note_of(row).has_row != 0);
      found.push_back(ids[i]);
    });
  });
  const std::vector<float> own = values_of(*table_, found);
  const float* from = own.data();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!here[i]) continue;
    std::copy_n(from, width_, values + i * width_);
    from += width_;
  }
  return here;
}

void LocalRows::keep(std::span<const uint64_t> ids, uint64_t, float* values) {
  std::vector<float> own(ids.size() * width_);
  table_->alone([&](GrowingTable& table) {
    std::vector<bool> had(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) had[i] = table.contains(ids[i]);
    table.rows(ids, own.data());  // makes those that are admitted
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::span pulled(values + i * width_, width_);
      bool is_new = false;
      std::byte* const row = servers_->row(servers_->insert(ids[i], is_new));
      const std::span<float> old = servers_values(row);
      const std::span now(own.data() + i * width_, width_);
      const bool has_row = table.contains(ids[i]);
      if (had[i] && !is_new && kept_width_ > 0) {
        geo_receive<float>(pulled, now, old);
      } else {
        std::copy_n(pulled.begin(), kept_width_, old.begin());
        if (has_row) std::copy(pulled.begin(), pulled.end(), now.begin());
      }
      std::copy(now.begin(), now.end(), pulled.begin());
      touch(ids[i], row, has_row);
    }
    table.set_values(ids, values);
  });
}

std::vector<uint64_t> LocalRows::take_touched() {
  ++round_;
  std::vector<uint64_t> ids = std::exchange(touched_, {});
  table_->reading([&](const GrowingTable& rows) {
    std::erase_if(ids, [&rows](uint64_t id) { return !rows.contains(id); });
  });
  if (servers_->size() > next_sweep_) forget_ids_without_rows();
  return ids;
}

void LocalRows::forget_ids_without_rows() {
  table_->reading([this](const GrowingTable& rows) {
    for (uint32_t bucket = 0; bucket < fluid::tables::kBuckets; ++bucket) {
      servers_->erase_if(bucket,
                         [&rows](uint64_t id, const std::byte*) { return !rows.contains(id); });
    }
  });
  next_sweep_ = std::max(kLeastNotesToSweep, 2 * servers_->size());
}

fluid::SelectedRows LocalRows::geo_differences(std::span<const uint64_t> ids, uint32_t workers) {
  const std::vector<float> now = values_of(*table_, ids);
  std::vector<float> differences(now.size());
  servers_->visit(ids, servers_->row_bytes(), [&](size_t i, std::byte* row, RowPlace) {
    geo_difference<float>({now.data() + i * width_, width_}, servers_values(row), workers,
                          {differences.data() + i * width_, width_});
  });
  return changed_rows(ids, differences, width_);
}

fluid::SelectedRows LocalRows::elastic_differences(std::span<const uint64_t> ids,
                                                   const float* centre, double alpha) {
  std::vector<float> now = values_of(*table_, ids);
  std::vector<float> differences(now.size());
  easgd_difference<float>(now, {centre, now.size()}, alpha, differences);
  table_->alone([&](GrowingTable& table) { table.set_values(ids, now.data()); });
  return changed_rows(ids, differences, width_);
}

void LocalRows::forget_differences() {
  make_store();
  touched_.clear();
  ++round_;
}

std::vector<bool> LocalRows::read(std::span<const uint64_t> ids, float* values) const {
  std::vector<bool> here(ids.size());
  table_->reading([&](const GrowingTable& table) {
    table.find(ids, values, GrowingTable::Missing::kInitial);
    servers_->visit(ids, servers_->row_bytes(), [&](size_t i, const std::byte* row, RowPlace) {
      here[i] = is_here(ids[i], row, table);
    });
  });
  return here;
}

}  // namespace fleet::strategies
