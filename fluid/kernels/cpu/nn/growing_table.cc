#include "fluid/ops/nn/growing_table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/growing_tables.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/tables/lookup/instance_shows.h"
#include "fluid/tables/lookup/unique_ids.h"

namespace fleet::fluid::cpu {
namespace {

constexpr uint32_t kPadding = std::numeric_limits<uint32_t>::max();

// The ids of all slots of an op.
struct SlotIds {
  TableInput table;
  int first = -1;  // positions of slots follow each other
  std::vector<int64_t> counts;
  int64_t total = 0;
  LookupGrowingTableAttrs attrs;

  // `looks`: the table is looked at, and not only its width.
  SlotIds(const PrepareContext& context, bool looks)
      : table(table_input(context, "Table", looks)),
        first(context.input("Ids")),
        attrs(context.attrs<LookupGrowingTableAttrs>()) {
    for (size_t i = 0; i < context.input_count("Ids"); ++i) {
      const ValueSpec& ids = context.in("Ids", i);
      context.require(ids.kind == ValueKind::kTensor && ids.dtype == DType::kInt64, "Ids", "int64",
                      std::string(dtype_name(ids.dtype)));
      counts.push_back(ids.shape.numel());
      total += counts.back();
    }
  }

  size_t slots() const { return counts.size(); }
  bool is_padding(int64_t id) const { return attrs.has_padding && id == attrs.padding_idx; }
  const int64_t* ids(const KernelContext& c, size_t slot) const {
    return c.in<int64_t>(first + static_cast<int>(slot));
  }
};

// What a step looks up: each id once, and where each id of the slots is among them.
struct LookedUp {
  tables::UniqueIds unique;
  std::vector<uint32_t> places;

  void find(const KernelContext& c, const SlotIds& slots) {
    unique.begin(static_cast<size_t>(slots.total));
    places.resize(static_cast<size_t>(slots.total));
    uint32_t* place = places.data();
    for (size_t slot = 0; slot < slots.slots(); ++slot) {
      const int64_t* ids = slots.ids(c, slot);
      for (int64_t i = 0; i < slots.counts[slot]; ++i) {
        const bool padding = slots.is_padding(ids[i]);
        *place++ = padding ? kPadding : unique.add(static_cast<uint64_t>(ids[i]));
      }
    }
  }
};

std::unique_ptr<Prepared> prepare_make(PrepareContext& context) {
  const tables::TableOptions options =
      table_options(context.attrs<MakeGrowingTableAttrs>(), context.op().output("Out").front(),
                    context.block().program().random_seed());
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) {
    c.output_value(out) = tables::table_value(std::make_shared<tables::SharedTable>(options));
  });
}

std::vector<int> declare_outputs(PrepareContext& context, const SlotIds& slots) {
  std::vector<int> outs;
  for (size_t i = 0; i < slots.slots(); ++i) {
    const Shape& ids = context.in("Ids", i).shape;
    const bool ends = slots.attrs.ids_end_in_one;
    context.require(!ends || (ids.rank() >= 1 && ids[-1] == 1), "Ids", "a last dimension of 1",
                    ids.to_string());
    Shape shape(ids.dims().first(static_cast<size_t>(ends ? ids.rank() - 1 : ids.rank())));
    shape.push_back(slots.table.width);
    outs.push_back(context.set_output("Out", shape, DType::kFloat32, i));
  }
  return outs;
}

// `count` rows of the values, or zeros.
void copy_rows(const Tiles& tiles, const uint32_t* places, const float* values, int64_t count,
               int64_t width, float* to) {
  const auto floats = static_cast<size_t>(width);
  tiles.split(count, width, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = to + i * width;
      if (places[i] == kPadding) {
        std::fill_n(row, floats, 0.0f);
      } else {
        std::memcpy(row, values + places[i] * floats, floats * sizeof(float));
      }
    }
  });
}

std::unique_ptr<Prepared> prepare_table_lookup(PrepareContext& context) {
  const SlotIds slots(context, true);
  const std::vector<int> outs = declare_outputs(context, slots);
  context.own_lod();
  return make_prepared([=, found = LookedUp(),
                        values = std::vector<float>()](const KernelContext& c) mutable {
    found.find(c, slots);
    const auto ids = found.unique.ids();
    values.resize(ids.size() * static_cast<size_t>(slots.table.width));
    tables::SharedTable& table = slots.table.table(c);
    if (slots.attrs.is_test) {
      table.reading([&](const tables::GrowingTable& rows) {
        rows.find(ids, values.data(), tables::GrowingTable::Missing::kInitial, c.tiles());
      });
    } else {
      table.alone([&](tables::GrowingTable& rows) { rows.rows(ids, values.data(), c.tiles()); });
    }
    const uint32_t* places = found.places.data();
    for (size_t slot = 0; slot < outs.size(); ++slot) {
      if (outs[slot] >= 0) {
        copy_rows(c.tiles(), places, values.data(), slots.counts[slot], slots.table.width,
                  c.out<float>(outs[slot]));
        c.output(outs[slot]).share_lod(c.input(slots.first + static_cast<int>(slot)));
      }
      places += slots.counts[slot];
    }
  });
}

std::unique_ptr<Prepared> prepare_table_lookup_grad(PrepareContext& context) {
  const SlotIds slots(context, false);
  const int grad = context.input("Out@GRAD");
  for (size_t i = 0; i < slots.slots(); ++i) {
    const Shape& shape = context.in("Out@GRAD", i).shape;
    context.require(shape.numel() == slots.counts[i] * slots.table.width, "Out@GRAD",
                    str_cat(slots.counts[i], " rows of ", slots.table.width), shape.to_string());
  }
  const int out = context.own_output("Table@GRAD");
  return make_prepared([=, from = std::vector<const float*>()](const KernelContext& c) mutable {
    std::vector<int64_t> numbers;
    numbers.reserve(static_cast<size_t>(slots.total));
    from.clear();
    // The last slot first, as the gradients of a lookup for each slot are joined.
    for (size_t slot = slots.slots(); slot-- > 0;) {
      const int64_t* ids = slots.ids(c, slot);
      const float* gradients = c.in<float>(grad + static_cast<int>(slot));
      for (int64_t i = 0; i < slots.counts[slot]; ++i) {
        if (slots.is_padding(ids[i])) continue;
        numbers.push_back(ids[i]);
        from.push_back(gradients + i * slots.table.width);
      }
    }
    const auto count = static_cast<int64_t>(numbers.size());
    SelectedRows& rows = c.make_rows(out, DType::kFloat32, Shape{count, slots.table.width});
    rows.height = SelectedRows::kNoHeight;
    rows.rows = std::move(numbers);
    auto* to = rows.value.data<float>();
    const auto width = static_cast<size_t>(slots.table.width);
    c.tiles().split(count, slots.table.width, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        std::memcpy(to + i * width, from[i], width * sizeof(float));
      }
    });
  });
}

std::unique_ptr<Prepared> prepare_shows(PrepareContext& context) {
  const SlotIds slots(context, true);
  const int show = context.input("Show");
  const int click = context.input("Click");
  for (const char* slot : {"Show", "Click"}) {
    const DType dtype = context.in(slot).dtype;
    context.require(dtype == DType::kFloat32 || dtype == DType::kInt64, slot, "int64 or float32",
                    std::string(dtype_name(dtype)));
  }
  return make_prepared([=, found = LookedUp()](const KernelContext& c) mutable {
    if (slots.attrs.is_test) return;
    found.find(c, slots);
    const tables::InstanceShows shows(c.input(show), c.input(click), slots.table.where);
    std::vector<float> show_sums(found.unique.ids().size());
    std::vector<float> click_sums(show_sums.size());
    const uint32_t* places = found.places.data();
    for (size_t slot = 0; slot < slots.slots(); ++slot) {
      const Tensor& ids = c.input(slots.first + static_cast<int>(slot));
      shows.for_each(ids, [&](size_t i, float shown, float clicked) {
        if (places[i] == kPadding) return;
        show_sums[places[i]] += shown;
        click_sums[places[i]] += clicked;
      });
      places += slots.counts[slot];
    }
    slots.table.table(c).alone([&](tables::GrowingTable& rows) {
      rows.add_shows(found.unique.ids(), show_sums, click_sums);
    });
  });
}

}  // namespace

void register_growing_table(KernelTable& table) {
  const auto add = [&table](const char* op, auto prepare) {
    table.add_last(op, DeviceKind::kCpu, DType::kFloat32, {.name = "rows", .prepare = prepare});
  };
  add("make_growing_table", prepare_make);
  add("lookup_growing_table", prepare_table_lookup);
  add("lookup_growing_table_grad", prepare_table_lookup_grad);
  for (const DType of_shows : {DType::kFloat32, DType::kInt64}) {
    table.add_last("add_growing_table_shows", DeviceKind::kCpu, of_shows,
                   {.name = "rows", .prepare = prepare_shows});
  }
}

}  // namespace fleet::fluid::cpu
