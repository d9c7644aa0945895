// sequence_pad, sequence_unpad and sequence_mask.
#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/sequence/sequences.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid::cpu {
namespace {

int64_t longest(const Offsets& offsets) {
  int64_t length = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    length = std::max(length, offsets[i + 1] - offsets[i]);
  }
  return length;
}

[[noreturn]] void throw_length(const std::string& where, int64_t limit, int64_t got) {
  throw_error(ErrorCode::kShapeMismatch, {.what = "a sequence is longer than the padded length",
                                          .where = where,
                                          .expected = str_cat("at most ", limit),
                                          .got = str_cat(got),
                                          .fix = "raise the padded length, or use -1"});
}

// Calls f(sequence, first of its padded rows, their end) for all of `length` rows a sequence, in
// tiles of as many rows each.
template <class F>
void split_padded(const Tiles& tiles, int64_t sequences, int64_t length, int64_t width,
                  const F& f) {
  tiles.split(sequences * length, width, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t i = begin / length;
      const int64_t stop = std::min(end, (i + 1) * length);
      f(i, begin - i * length, stop - i * length);
      begin = stop;
    }
  });
}

// The rows of sequences out of padded ones.
template <class T>
void copy_unpadded(const Tiles& tiles, const Offsets& offsets, int64_t length, int64_t width,
                   const T* padded, T* rows) {
  split_rows(tiles, offsets, width, [&](int64_t i, int64_t begin, int64_t end) {
    const int64_t first = offsets[static_cast<size_t>(i)];
    std::copy_n(padded + (i * length + begin - first) * width, (end - begin) * width,
                rows + begin * width);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_pad(PrepareContext& context) {
  const SequenceInput x(context, "X");
  const int64_t limit = context.attrs<SequencePadAttrs>().padded_length;
  const Shape row = context.in("X").shape;
  const ValueSpec& pad_spec = context.in("PadValue");
  context.require(pad_spec.dtype == dtype_of<T>() &&
                      (pad_spec.shape.numel() == 1 || pad_spec.shape.numel() == x.width),
                  "PadValue", str_cat("1 or ", x.width, " elements of X's type"),
                  str_cat(dtype_name(pad_spec.dtype), pad_spec.shape));
  const bool whole_row = pad_spec.shape.numel() == x.width;
  const int pad = context.input("PadValue");
  const int out = context.own_output("Out");
  const int lengths = context.own_output("Length");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    const Offsets& offsets = x.offsets(c);
    const int64_t count = sequence_count(offsets);
    const int64_t most = longest(offsets);
    const int64_t length = limit < 0 ? most : limit;
    if (most > length) throw_length(x.where, length, most);
    Shape shape{count, length};
    for (int d = 1; d < row.rank(); ++d) shape.push_back(row[d]);
    T* to = c.make_dense(out, dtype_of<T>(), shape).template data<T>();
    int64_t* sizes = nullptr;
    if (lengths >= 0) {
      sizes = c.make_dense(lengths, DType::kInt64, Shape{count}).template data<int64_t>();
    }
    const T* pads = c.in<T>(pad);
    for (size_t i = 0; sizes != nullptr && i < static_cast<size_t>(count); ++i) {
      sizes[i] = offsets[i + 1] - offsets[i];
    }
    split_padded(c.tiles(), count, length, x.width, [&](int64_t i, int64_t begin, int64_t end) {
      const int64_t first = offsets[static_cast<size_t>(i)];
      const int64_t rows = offsets[static_cast<size_t>(i) + 1] - first;
      const int64_t filled = std::clamp(rows, begin, end);
      T* at = std::copy_n(c.in<T>(x.position) + (first + begin) * x.width,
                          (filled - begin) * x.width, to + (i * length + begin) * x.width);
      for (int64_t k = filled; k < end; ++k) {
        for (int64_t j = 0; j < x.width; ++j) *at++ = pads[whole_row ? j : 0];
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_pad_grad(PrepareContext& context) {
  const SequenceInput x(context, "X");
  const Shape& padded = context.in("Out@GRAD").shape;
  context.require(padded.rank() >= 2 && padded.numel(2, padded.rank()) == x.width, "Out@GRAD",
                  str_cat("[sequences, length, ...], rows of ", x.width), padded.to_string());
  const int64_t length = padded[1];
  const int64_t rows_of_all = padded[0];
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    c.output(out).share_lod(x.tensor(c));
    const Offsets& offsets = x.offsets(c);
    if (longest(offsets) > length || sequence_count(offsets) != rows_of_all) {
      throw_length(x.where, length, longest(offsets));
    }
    copy_unpadded(c.tiles(), offsets, length, x.width, c.in<T>(grad), c.out<T>(out));
  });
}

// Rows without their padding: those within each length.
template <class T>
std::unique_ptr<Prepared> prepare_unpad(PrepareContext& context) {
  const Shape padded = context.in("X").shape;
  context.require(padded.rank() >= 2, "X", "[sequences, length, ...]", padded.to_string());
  const ValueSpec& given = context.in("Length");
  context.require(given.dtype == DType::kInt64 && given.shape.numel() == padded[0], "Length",
                  str_cat("int64[", padded[0], "]"), str_cat(dtype_name(given.dtype), given.shape));
  const std::string where = str_cat("op '", context.op().type, "', slot 'Length', variable '",
                                    context.op().input("Length").front(), "'");
  const int x = context.input("X");
  const int lengths = context.input("Length");
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    Offsets offsets = {0};
    for (int64_t i = 0; i < padded[0]; ++i) {
      const int64_t length = c.in<int64_t>(lengths)[i];
      if (length < 0 || length > padded[1]) throw_length(where, padded[1], length);
      offsets.push_back(offsets.back() + length);
    }
    Shape shape{offsets.back()};
    for (int d = 2; d < padded.rank(); ++d) shape.push_back(padded[d]);
    if (shape.rank() == 1) shape.push_back(1);
    const int64_t width = padded.numel(2, padded.rank());
    Tensor& rows = c.make_dense(out, dtype_of<T>(), shape);
    copy_unpadded(c.tiles(), offsets, padded[1], width, c.in<T>(x), rows.data<T>());
    rows.set_lod({std::move(offsets)});
  });
}

// How long each sequence is the gradient itself says.
template <class T>
std::unique_ptr<Prepared> prepare_unpad_grad(PrepareContext& context) {
  const SequenceInput grad(context, "Out@GRAD");
  const Shape padded = context.in("X").shape;
  context.require(padded.rank() >= 2 && padded.numel(2, padded.rank()) == grad.width, "X",
                  str_cat("[sequences, length, ...], rows of ", grad.width), padded.to_string());
  const int out = context.set_output("X@GRAD", padded, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const Offsets& offsets = grad.offsets(c);
    if (longest(offsets) > padded[1] || sequence_count(offsets) != padded[0]) {
      throw_length(grad.where, padded[1], longest(offsets));
    }
    std::fill_n(c.out<T>(out), padded.numel(), T{});
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      std::copy_n(c.in<T>(grad.position) + offsets[i] * grad.width,
                  (offsets[i + 1] - offsets[i]) * grad.width,
                  c.out<T>(out) + static_cast<int64_t>(i) * padded[1] * grad.width);
    }
  });
}

template <class From, class To>
std::unique_ptr<Prepared> prepare_mask_to(PrepareContext& context) {
  const Shape lengths = context.in("X").shape;
  const int64_t n = lengths.numel();
  const int64_t fixed = context.attrs<SequenceMaskAttrs>().maxlen;
  const int x = context.input("X");
  const int given = context.input("MaxLenTensor");
  const bool wide = given >= 0 && context.in("MaxLenTensor").dtype == DType::kInt64;
  const int out = context.own_output("Y");
  context.own_lod();
  return make_prepared([=](const KernelContext& c) {
    const From* xs = c.in<From>(x);
    int64_t length = fixed;
    if (given >= 0) length = wide ? *c.in<int64_t>(given) : *c.in<int32_t>(given);
    if (length <= 0) {
      length = 0;
      for (int64_t i = 0; i < n; ++i) length = std::max(length, static_cast<int64_t>(xs[i]));
    }
    Shape shape = lengths;
    shape.push_back(length);
    To* to = c.make_dense(out, dtype_of<To>(), shape).template data<To>();
    split_padded(c.tiles(), n, length, 1, [&](int64_t i, int64_t begin, int64_t end) {
      To* row = to + i * length;
      for (int64_t k = begin; k < end; ++k) row[k] = static_cast<To>(static_cast<From>(k) < xs[i]);
    });
  });
}

template <class From>
std::unique_ptr<Prepared> prepare_mask(PrepareContext& context) {
  const DType wanted = context.attrs<SequenceMaskAttrs>().out_dtype;
  std::unique_ptr<Prepared> prepared;
  for_types<bool, uint8_t, int32_t, int64_t, float, double>([&]<class To>(std::type_identity<To>) {
    if (wanted == dtype_of<To>()) prepared = prepare_mask_to<From, To>(context);
  });
  return prepared;
}

}  // namespace

void register_sequence_padding(KernelTable& table) {
  for_types<float, double, int32_t, int64_t>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "rows", .prepare = prepare});
    };
    add("sequence_pad", prepare_pad<T>);
    add("sequence_unpad", prepare_unpad<T>);
    add("sequence_mask", prepare_mask<T>);
    if constexpr (std::is_floating_point_v<T>) {
      add("sequence_pad_grad", prepare_pad_grad<T>);
      add("sequence_unpad_grad", prepare_unpad_grad<T>);
    }
  });
}

}  // namespace fleet::fluid::cpu
