#include "fluid/ops/distributed/server_ops.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/distributed/table_ops.h"
#include "fluid/kernels/cpu/math/row_sums.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/ops/distributed/table_ops.h"

namespace fleet::fluid::cpu {
namespace {

std::unique_ptr<Prepared> prepare_ref_by_trainer_id(PrepareContext& context) {
  const ValueSpec& spec = context.in("X");
  const auto count = static_cast<int64_t>(context.input_count("X"));
  const int first = context.input("X");
  const int id = context.input("TrainerId");
  const int out = context.set_output("Out", spec.shape, spec.dtype);
  return make_prepared([=](const KernelContext& c) {
    const int64_t trainer = *c.in<int64_t>(id);
    if (trainer < 0 || trainer >= count) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "a trainer that the program does not know",
                   .where = "op 'ref_by_trainer_id', input TrainerId",
                   .expected = str_cat("0 to ", count - 1),
                   .got = str_cat(trainer),
                   .fix = "transpile for as many trainers as the job has"});
    }
    copy_elements(c.tiles(), c.input(first + static_cast<int>(trainer)), c.output(out));
  });
}

// A form of compensation over a run of elements.
template <class T>
struct Compensation {
  explicit Compensation(const DcCompensateAttrs& attrs)
      : constant(attrs.form == "constant"),
        clipped(attrs.form == "clipped"),
        lambda(static_cast<T>(attrs.lambda)),
        m(static_cast<T>(attrs.m)),
        epsilon(static_cast<T>(attrs.epsilon)) {}

  // `means` become `next`; neither is read by the constant form.
  void run(const T* p, const T* g, const T* b, const T* means, T* next, T* out, int64_t n) const {
    if (constant) {
      for (int64_t i = 0; i < n; ++i) out[i] = g[i] + lambda * g[i] * g[i] * (p[i] - b[i]);
      return;
    }
    const auto ratio = [=, this](int64_t i) {
      next[i] = m * means[i] + (T{1} - m) * g[i] * g[i];
      return lambda * g[i] * (p[i] - b[i]) / std::sqrt(next[i] + epsilon);
    };
    if (clipped) {
      for (int64_t i = 0; i < n; ++i) out[i] = g[i] + g[i] * std::clamp(ratio(i), T{-1}, T{1});
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = g[i] + g[i] * ratio(i);
    }
  }

  bool constant;
  bool clipped;
  T lambda;
  T m;
  T epsilon;
};

template <class T>
std::unique_ptr<Prepared> prepare_dc_compensate(PrepareContext& context) {
  const Compensation<T> form(context.attrs<DcCompensateAttrs>());
  const Shape shape = context.in("Param").shape;
  const int64_t n = shape.numel();
  const int param = context.input("Param");
  const int grad = context.input("Grad");
  const int backup = context.input("Backup");
  const int mean = context.input("MeanSquare");
  const int mean_out = mean < 0 ? -1 : context.set_output("MeanSquareOut", shape, dtype_of<T>());
  const auto means = [=](const KernelContext& c) { return mean < 0 ? nullptr : c.in<T>(mean); };
  const auto next = [=](const KernelContext& c) { return mean < 0 ? nullptr : c.out<T>(mean_out); };
  if (context.in("Grad").kind != ValueKind::kSelectedRows) {
    const int out = context.set_output("Out", shape, dtype_of<T>());
    return make_prepared([=](const KernelContext& c) {
      const auto from = [](auto* at, int64_t begin) { return at == nullptr ? at : at + begin; };
      c.tiles().split(n, 1, [&](int64_t begin, int64_t end) {
        form.run(c.in<T>(param) + begin, c.in<T>(grad) + begin, c.in<T>(backup) + begin,
                 from(means(c), begin), from(next(c), begin), c.out<T>(out) + begin, end - begin);
      });
    });
  }
  const int out = context.own_output("Out");
  const int64_t width = shape.numel(1, shape.rank());
  return make_prepared([=, merged = MergedRows<T>()](const KernelContext& c) mutable {
    merged.merge(c.rows_input(grad), shape[0], width, c.tiles());
    if (mean >= 0) copy_elements(c.tiles(), c.input(mean), c.output(mean_out));
    Shape rows = shape;
    rows.set(0, static_cast<int64_t>(merged.count()));
    SelectedRows made;
    made.rows = merged.rows();
    made.height = shape[0];
    made.value = Tensor(dtype_of<T>(), rows);
    T* to = made.value.template data<T>();
    c.tiles().split(rows[0], width, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = merged.row(static_cast<size_t>(i)) * width;
        T* mean_row = mean < 0 ? nullptr : next(c) + at;
        form.run(c.in<T>(param) + at, merged.values() + i * width, c.in<T>(backup) + at, mean_row,
                 mean_row, to + i * width, width);
      }
    });
    c.output_value(out) = std::move(made);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_squared_row_sums(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  context.require(shape.rank() > 0, "X", "at least one dimension", shape.to_string());
  const int64_t rows = shape[0];
  const int64_t length = shape.numel(1, shape.rank());
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{rows}, DType::kFloat64);
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    double* outs = c.out<double>(out);
    each_squared_row_sum(c.tiles(), xs, rows, length,
                         [=](int64_t row, double sum) { outs[row] = sum; });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_sum_marked_rows(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  context.require(shape.rank() == 2 && shape[1] == 2, "X", "shape [rows, 2]", shape.to_string());
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, dtype_of<T>());
  return make_prepared(
      [=, rows = shape[0], sums = std::vector<T>()](const KernelContext& c) mutable {
        const T* xs = c.in<T>(x);
        sums.clear();
        for (int64_t row = 0; row < rows; ++row) {
          if (xs[2 * row + 1] != T{}) sums.push_back(xs[2 * row]);
        }
        *c.out<T>(out) = sum_of(c.tiles(), sums.data(), static_cast<int64_t>(sums.size()));
      });
}

template <class T>
std::unique_ptr<Prepared> prepare_interleave_rows(PrepareContext& context) {
  const auto [parts, rows] = context.attrs<InterleaveRowsAttrs>();
  Shape shape = context.in("X").shape;
  const int64_t height = shape[0] / parts;
  const int64_t width = shape.numel(1, shape.rank());
  shape.set(0, rows);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, parts = parts, rows = rows](const KernelContext& c) {
    c.tiles().split(rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t from = row % parts * height + row / parts;
        std::copy_n(c.in<T>(x) + from * width, width, c.out<T>(out) + row * width);
      }
    });
  });
}

// The rows of X that fall into each section, in the order in which X has them.
template <class T>
std::unique_ptr<Prepared> prepare_split_selected_rows(PrepareContext& context) {
  const auto sections = context.attrs<SplitSelectedRowsAttrs>().height_sections;
  context.require(context.in("X").kind == ValueKind::kSelectedRows, "X", "selected rows",
                  "a dense tensor");
  const int x = context.input("X");
  std::vector<int> outs;
  for (size_t i = 0; i < sections.size(); ++i) outs.push_back(context.own_output("Out", i));
  return make_prepared([=](const KernelContext& c) {
    const auto& source = std::get<SelectedRows>(c.input_value(x));
    require_height(source, "op 'split_selected_rows', slot 'X'");
    Shape shape = source.value.shape();
    const int64_t width = shape.numel(1, shape.rank());
    int64_t begin = 0;
    for (size_t i = 0; i < sections.size(); ++i) {
      SelectedRows part;
      part.height = sections[i];
      std::vector<size_t> from;
      for (size_t row = 0; row < source.rows.size(); ++row) {
        if (source.rows[row] < begin || source.rows[row] >= begin + sections[i]) continue;
        part.rows.push_back(source.rows[row] - begin);
        from.push_back(row);
      }
      shape.set(0, static_cast<int64_t>(from.size()));
      part.value = Tensor(dtype_of<T>(), shape);
      const T* values = source.value.template data<T>();
      T* to = part.value.template data<T>();
      c.tiles().split(shape[0], width, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row) {
          const auto given = static_cast<int64_t>(from[static_cast<size_t>(row)]);
          std::copy_n(values + given * width, width, to + row * width);
        }
      });
      c.output_value(outs[i]) = std::move(part);
      begin += sections[i];
    }
  });
}

}  // namespace

void register_server_ops(KernelTable& table) {
  register_table_ops(table);
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add("ref_by_trainer_id", prepare_ref_by_trainer_id);
    add("dc_compensate", prepare_dc_compensate<T>);
    add("split_selected_rows", prepare_split_selected_rows<T>);
    add("squared_row_sums", prepare_squared_row_sums<T>);
    add("sum_marked_rows", prepare_sum_marked_rows<T>);
    add("interleave_rows", prepare_interleave_rows<T>);
  });
}

}  // namespace fleet::fluid::cpu
