#include "fluid/ops/nn/dropout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/numbers/philox_words.h"
#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/cpu/nn/register_nn.h"

namespace fleet::fluid::cpu {
namespace {

// Which elements stay: `keep` of 2^32 words of the stream do. Four elements share a block.
struct Keeper {
  RandomKey key;
  int seed = -1;           // input with the number that makes the key instead
  uint64_t threshold = 0;  // a word below it drops its element

  // Elements [begin, end) of the mask.
  void fill(const KernelContext& c, uint8_t* mask, int64_t begin, int64_t end) const {
    if (seed >= 0) {
      const auto number = static_cast<uint64_t>(*c.in<int32_t>(seed));
      fill_by(RandomKey::of(number, ""), 0, mask, begin, end);
      return;
    }
    const auto shard = static_cast<uint64_t>(c.shard() < 0 ? 0 : c.shard());
    fill_by(key, (c.step() + 1) << 16 | shard, mask, begin, end);
  }

  void fill_by(RandomKey by, uint64_t word, uint8_t* mask, int64_t begin, int64_t end) const {
    std::array<uint32_t, 1024> words;
    for (int64_t i = begin; i < end; i += static_cast<int64_t>(words.size())) {
      const size_t count = std::min(words.size(), static_cast<size_t>(end - i));
      philox_words(by, static_cast<uint64_t>(i), word, std::span(words).first(count));
      uint8_t* const to = mask + i;
      FLEET_EACH_ALONE
      for (size_t k = 0; k < count; ++k) to[k] = words[k] >= threshold ? 1 : 0;
    }
  }
};

// Of an element whose random number is made, too.
constexpr int64_t kCost = 4;

// Elements that stay, times the factor; the others become 0, whatever they are. Without a branch,
// which a processor could not predict.
template <class T>
void scale_kept(const uint8_t* kept, T factor, const T* in, T* out, int64_t n) {
  using Bits = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  FLEET_EACH_ALONE
  for (int64_t i = 0; i < n; ++i) {
    const Bits all = Bits{0} - static_cast<Bits>(kept[i] != 0);
    out[i] = std::bit_cast<T>(std::bit_cast<Bits>(in[i] * factor) & all);
  }
}

Keeper keeper_of(const PrepareContext& context, const DropoutAttrs& attrs) {
  const auto& masks = context.op().output("Mask");
  const std::string& name =
      masks.empty() || masks.front().empty() ? context.op().output("Out").front() : masks.front();
  const uint64_t program = context.block().program().random_seed();
  const uint64_t seed = attrs.fix_seed ? static_cast<uint64_t>(attrs.seed) : program;
  return {
      .key = RandomKey::of(seed, name),
      .seed = optional_scalar_input<int32_t>(context, "Seed"),
      .threshold = static_cast<uint64_t>(static_cast<double>(attrs.dropout_prob) * 4294967296.0)};
}

template <class T>
std::unique_ptr<Prepared> prepare_dropout(PrepareContext& context) {
  const auto attrs = context.attrs<DropoutAttrs>();
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const int mask = context.set_output("Mask", shape, DType::kUInt8);
  const T keep = T{1} - static_cast<T>(attrs.dropout_prob);
  if (attrs.is_test) {
    const T factor = attrs.upscales() ? T{1} : keep;
    return make_prepared([=](const KernelContext& c) {
      const T* xs = c.in<T>(x);
      T* outs = c.out<T>(out);
      auto* kept = mask >= 0 ? c.out<uint8_t>(mask) : nullptr;
      c.tiles().split(n, 1, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) outs[i] = xs[i] * factor;
        if (kept != nullptr) std::memset(kept + begin, 1, static_cast<size_t>(end - begin));
      });
    });
  }
  const T factor = !attrs.upscales() ? T{1} : keep > T{} ? T{1} / keep : T{};
  const Keeper keeper = keeper_of(context, attrs);
  return make_prepared([=](const KernelContext& c) {
    auto* kept = mask >= 0 ? c.out<uint8_t>(mask)
                           : reinterpret_cast<uint8_t*>(c.scratch().get(static_cast<size_t>(n)));
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    c.tiles().split(n, kCost, [&](int64_t begin, int64_t end) {
      keeper.fill(c, kept, begin, end);
      scale_kept(kept + begin, factor, xs + begin, outs + begin, end - begin);
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_dropout_grad(PrepareContext& context) {
  const auto attrs = context.attrs<DropoutAttrs>();
  const Shape shape = context.in("Out@GRAD").shape;
  const int64_t n = shape.numel();
  context.require(context.in("Mask").shape.numel() == n, "Mask", shape.to_string(),
                  context.in("Mask").shape.to_string());
  const int mask = context.input("Mask");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  const T keep = T{1} - static_cast<T>(attrs.dropout_prob);
  T factor = T{1};
  if (attrs.is_test) {
    factor = attrs.upscales() ? T{1} : keep;
  } else if (attrs.upscales()) {
    factor = keep > T{} ? T{1} / keep : T{};
  }
  return make_prepared([=](const KernelContext& c) {
    const auto* kept = c.in<uint8_t>(mask);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    c.tiles().split(n, 1, [=](int64_t begin, int64_t end) {
      scale_kept(kept + begin, factor, grads + begin, outs + begin, end - begin);
    });
  });
}

}  // namespace

void register_dropout(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("dropout", DeviceKind::kCpu, dtype_of<T>(), {"philox", prepare_dropout<T>});
    table.add_last("dropout_grad", DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", prepare_dropout_grad<T>});
  });
}

}  // namespace fleet::fluid::cpu
