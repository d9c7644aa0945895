// What trainers compute about tables whose row r is on server r modulo the servers.
#include "fluid/kernels/cpu/distributed/table_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/distributed/table_ops.h"

namespace fleet::fluid::cpu {
namespace {

// The ids of each server, strictly ascending.
std::unique_ptr<Prepared> prepare_split_ids(PrepareContext& context) {
  const size_t count = context.input_count("Ids");
  const int first = context.input("Ids");
  std::vector<int> outs;
  for (size_t i = 0; i < context.op().output("Out").size(); ++i) {
    outs.push_back(context.own_output("Out", i));
  }
  return make_prepared([=](const KernelContext& c) {
    std::vector<int64_t> ids;
    for (size_t i = 0; i < count; ++i) {
      const auto values = c.input(first + static_cast<int>(i)).template values<int64_t>();
      ids.insert(ids.end(), values.begin(), values.end());
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    const auto servers = static_cast<int64_t>(outs.size());
    for (int64_t server = 0; server < servers; ++server) {
      std::vector<int64_t> here;
      std::copy_if(ids.begin(), ids.end(), std::back_inserter(here),
                   [&](int64_t id) { return id % servers == server; });
      Tensor& out = c.make_dense(outs[static_cast<size_t>(server)], DType::kInt64,
                                 Shape{static_cast<int64_t>(here.size()), 1});
      std::copy(here.begin(), here.end(), out.data<int64_t>());
    }
  });
}

// The rows of each server under their numbers in the table, equal ones summed.
template <class T>
std::unique_ptr<Prepared> prepare_split_rows(PrepareContext& context) {
  context.require(context.in("Ids").kind == ValueKind::kSelectedRows, "Ids",
                  "int64 ids, or selected rows", "a dense tensor of another type");
  const int from = context.input("Ids");
  std::vector<int> outs;
  for (size_t i = 0; i < context.op().output("Out").size(); ++i) {
    outs.push_back(context.own_output("Out", i));
  }
  return make_prepared([=, merged = MergedRows<T>()](const KernelContext& c) mutable {
    const SelectedRows& source = c.rows_input(from);
    require_height(source, "op 'split_ids', slot 'Ids'");
    Shape shape = source.value.shape();
    const int64_t width = shape.numel(1, shape.rank());
    merged.merge(source, source.height, width, c.tiles());
    const auto servers = static_cast<int64_t>(outs.size());
    for (int64_t server = 0; server < servers; ++server) {
      SelectedRows part;
      part.height = source.height;
      std::vector<int64_t> chosen;
      for (size_t i = 0; i < merged.count(); ++i) {
        if (merged.row(i) % servers != server) continue;
        part.rows.push_back(merged.row(i));
        chosen.push_back(static_cast<int64_t>(i));
      }
      shape.set(0, static_cast<int64_t>(part.rows.size()));
      part.value = Tensor(dtype_of<T>(), shape);
      T* to = part.value.template data<T>();
      c.tiles().split(shape[0], width, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T* row = merged.values() + chosen[static_cast<size_t>(i)] * width;
          std::copy_n(row, width, to + i * width);
        }
      });
      c.output_value(outs[static_cast<size_t>(server)]) = std::move(part);
    }
  });
}

// The rows of each server, those of equal ids summed.
std::unique_ptr<Prepared> prepare_split_growing_rows(PrepareContext& context) {
  require_rows(context);
  const int x = context.input("X");
  std::vector<int> outs;
  for (size_t i = 0; i < context.output_count("Out"); ++i) {
    outs.push_back(context.own_output("Out", i));
  }
  return make_prepared(
      [=, merged = MergedRows<float>(),
       chosen = std::vector<std::vector<size_t>>()](const KernelContext& c) mutable {
        const SelectedRows& source = c.rows_input(x);
        const int64_t width = row_width(source.value);
        merged.merge(source, SelectedRows::kNoHeight, width, c.tiles());
        chosen.resize(outs.size());
        for (auto& of_server : chosen) of_server.clear();
        for (size_t i = 0; i < merged.count(); ++i) {
          chosen[server_of_id(static_cast<uint64_t>(merged.row(i)), outs.size())].push_back(i);
        }
        for (size_t server = 0; server < outs.size(); ++server) {
          const std::vector<size_t>& from = chosen[server];
          const auto count = static_cast<int64_t>(from.size());
          SelectedRows part{.rows = {}, .height = SelectedRows::kNoHeight, .value = {}};
          part.rows.reserve(from.size());
          for (const size_t i : from) part.rows.push_back(merged.row(i));
          part.value = Tensor(DType::kFloat32, Shape{count, width});
          auto* to = part.value.data<float>();
          c.tiles().split(count, width, [&](int64_t begin, int64_t end) {
            for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
              const auto floats = static_cast<size_t>(width);
              std::copy_n(merged.values() + from[i] * floats, floats, to + i * floats);
            }
          });
          c.output_value(outs[server]) = std::move(part);
        }
      });
}

// Ids of lookup_table end in a dimension of 1, which its output has not.
Shape out_shape(const PrepareContext& context, size_t i, int64_t width) {
  const Shape& ids = context.in("Ids", i).shape;
  const VarDesc* var = context.output_var("Out", i);
  const bool last_is_one = var != nullptr && var->shape.rank() == ids.rank();
  Shape shape(ids.dims().first(static_cast<size_t>(ids.rank() - (last_is_one ? 1 : 0))));
  shape.push_back(width);
  return shape;
}

// Of finding an id among a server's, in elements of a simple loop.
constexpr int64_t kSearchCost = 100;

template <class T>
std::unique_ptr<Prepared> prepare_merge_ids(PrepareContext& context) {
  const size_t count = context.input_count("Ids");
  const auto servers = static_cast<int64_t>(context.input_count("X"));
  const Shape& rows = context.in("X").shape;
  const int64_t width = rows.numel(1, rows.rank());
  const int64_t padding = context.attrs<MergeIdsAttrs>().padding_idx;
  const int ids = context.input("Ids");
  const int numbers = context.input("Rows");
  const int values = context.input("X");
  std::vector<int> outs;
  for (size_t i = 0; i < count; ++i) {
    outs.push_back(context.set_output("Out", out_shape(context, i, width), dtype_of<T>(), i));
  }
  return make_prepared([=](const KernelContext& c) {
    for (size_t i = 0; i < count; ++i) {
      const int at = ids + static_cast<int>(i);
      const auto put_row = [&](int64_t id, T* out) {
        if (padding >= 0 && id == padding) {
          std::fill_n(out, width, T{});
          return;
        }
        const int server = static_cast<int>(id % servers);
        const auto* here = c.in<int64_t>(numbers + server);
        const auto* end = here + c.input(numbers + server).numel();
        const auto row = std::lower_bound(here, end, id) - here;
        std::copy_n(c.in<T>(values + server) + row * width, width, out);
      };
      c.tiles().split(c.input(at).numel(), width + kSearchCost, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          put_row(c.in<int64_t>(at)[k], c.out<T>(outs[i]) + k * width);
        }
      });
    }
  });
}

}  // namespace

void register_table_ops(KernelTable& table) {
  table.add_last("split_ids", DeviceKind::kCpu, DType::kInt64, {"sort", prepare_split_ids});
  table.add_last("split_growing_rows", DeviceKind::kCpu, DType::kFloat32,
                 {"sort", prepare_split_growing_rows});
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("split_ids", DeviceKind::kCpu, dtype_of<T>(), {"sort", prepare_split_rows<T>});
    table.add_last("merge_ids", DeviceKind::kCpu, dtype_of<T>(), {"rows", prepare_merge_ids<T>});
  });
}

}  // namespace fleet::fluid::cpu
