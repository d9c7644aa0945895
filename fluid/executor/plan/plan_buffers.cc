#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "fluid/executor/plan/plan_buffers_impl.h"
#include "fluid/kernels/image_layout.h"

namespace fleet::fluid {
namespace {

struct Shared {
  int free_after = -1;
  const VarDesc* last = nullptr;
  Place place;
  int64_t bytes = 0;  // as far as the program tells

  bool suits(const VarDesc* desc) const {
    return desc != nullptr && last != nullptr && desc->shape == last->shape &&
           desc->dtype == last->dtype;
  }
};

// Of a variable, where a dimension that only a run knows counts as a common batch.
int64_t bytes_of(const VarDesc* desc) {
  if (desc == nullptr) return 0;
  constexpr int64_t kBatch = 64;
  auto bytes = static_cast<int64_t>(dtype_size(desc->dtype));
  for (const int64_t size : desc->shape) bytes *= size < 0 ? kBatch : size;
  return bytes;
}

// The buffers whose variables nobody reads any more, by size.
class FreeBuffers {
 public:
  // A buffer has a variable until an op has run.
  void take(int buffer, int until) { busy_.emplace(until, buffer); }

  // Finds those that are free when op k runs; k does not fall.
  void find(int k, const std::vector<Shared>& buffers) {
    while (!busy_.empty() && busy_.begin()->first < k) {
      const auto [until, buffer] = *busy_.begin();
      busy_.erase(busy_.begin());
      const Shared& shared = buffers[static_cast<size_t>(buffer)];
      if (shared.free_after == until) of(shared.place).emplace(shared.bytes, buffer);
    }
  }

  void leave(int buffer, const Shared& shared) { of(shared.place).erase({shared.bytes, buffer}); }

  // One of this type and shape; else the smallest that is large enough, unless it is much larger
  // and others will want it; else the largest, which grows; or -1.
  int best_for(const VarDesc* desc, const Place& place, const std::vector<Shared>& buffers) {
    constexpr int64_t kMuchLarger = 8;
    const auto& free = of(place);
    const int64_t bytes = bytes_of(desc);
    const auto large_enough = free.lower_bound({bytes, 0});
    for (auto it = large_enough; it != free.end() && it->first == bytes; ++it) {
      if (buffers[static_cast<size_t>(it->second)].suits(desc)) return it->second;
    }
    if (large_enough != free.end() && large_enough->first <= kMuchLarger * bytes) {
      return large_enough->second;
    }
    return large_enough == free.begin() ? -1 : std::prev(large_enough)->second;
  }

 private:
  using BySize = std::set<std::pair<int64_t, int>>;

  BySize& of(const Place& place) {
    for (auto& [known, free] : free_) {
      if (known == place) return free;
    }
    return free_.emplace_back(place, BySize()).second;
  }

  std::set<std::pair<int, int>> busy_;  // last op, buffer
  std::vector<std::pair<Place, BySize>> free_;
};

// Gives buffers in the order in which ops write variables first. A variable takes the buffer of an
// input that its op reads last and may write over, else one whose variable nobody reads any more,
// else a new one.
class BufferPlanner {
 public:
  explicit BufferPlanner(PlanData& plan) : plan_(plan) {}

  // Variables whose lives do not touch share a buffer, those of equal size first.
  void plan_buffers() {
    const std::vector<Life> all = lives();
    std::vector<int> order;
    for (int i = 0; i < static_cast<int>(all.size()); ++i) {
      const PlanVar& candidate = var(i);
      const bool shares = !candidate.in_scope && candidate.copy_of < 0 && candidate.feed < 0 &&
                          candidate.written && candidate.is_dense() &&
                          !all[static_cast<size_t>(i)].pinned;
      if (shares) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&all](int a, int b) {
      return std::pair(all[static_cast<size_t>(a)].begin, a) <
             std::pair(all[static_cast<size_t>(b)].begin, b);
    });
    std::vector<Shared> buffers;
    FreeBuffers free;
    for (const int i : order) {
      const Life& life = all[static_cast<size_t>(i)];
      if (const int viewed = buffer_viewed(i, all); viewed >= 0) {
        Shared& buffer = buffers[static_cast<size_t>(viewed)];
        buffer.free_after = std::max(buffer.free_after, life.end);
        buffer.last = nullptr;  // nobody writes over what several variables have
        free.take(viewed, buffer.free_after);
        var(i).buffer = viewed;
        continue;
      }
      free.find(life.begin, buffers);
      int chosen = buffer_of_input(i, life.begin, buffers);
      if (chosen < 0) chosen = free.best_for(var_desc(i), var(i).place, buffers);
      if (chosen < 0) {
        chosen = static_cast<int>(buffers.size());
        buffers.emplace_back();
      }
      Shared& buffer = buffers[static_cast<size_t>(chosen)];
      free.leave(chosen, buffer);
      buffer = {life.end, var(i).desc, var(i).place, std::max(buffer.bytes, bytes_of(var_desc(i)))};
      free.take(chosen, life.end);
      var(i).buffer = chosen;
    }
    plan_.buffer_count = static_cast<int>(buffers.size());
  }

  // Images that stay in blocks of channels between the ops that compute in them.
  void find_images() {
    if (!plan_.key.place.is_cpu()) return;
    std::set<int> joined(plan_.per_shard.begin(), plan_.per_shard.end());
    joined.insert(plan_.statistics.begin(), plan_.statistics.end());
    for (const PlanOp& op : plan_.ops) {
      for (const int i : op.inputs) {
        PlanVar& image = var(i);
        const bool own = image.buffer >= 0 && image.desc != nullptr && !joined.contains(i);
        const bool fits = own && can_be_blocked(image.desc->dtype, image.desc->shape);
        if (fits && !image.may_block) image.may_block = reads_blocks(op, image);
      }
    }
  }

 private:
  bool reads_blocks(const PlanOp& op, const PlanVar& image) const {
    const bool alike = std::all_of(op.inputs.begin(), op.inputs.end(), [&](int i) {
      return var_desc(i) != nullptr && var_desc(i)->shape == image.desc->shape;
    });
    const auto kernels = kernels_of(op, image);
    return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
      return kernel.images == ImageOrder::kElements ? alike : kernel.images != ImageOrder::kPlain;
    });
  }

  PlanVar& var(int i) { return plan_.vars[static_cast<size_t>(i)]; }

  // From the first op that writes a variable to the last that reads it.
  struct Life {
    int begin = std::numeric_limits<int>::max();
    int end = -1;
    int writers = 0;
    bool pinned = false;
  };

  std::vector<Life> lives() const {
    std::vector<Life> lives(plan_.vars.size());
    for (int k = 0; k < static_cast<int>(plan_.ops.size()); ++k) {
      const PlanOp& op = plan_.ops[static_cast<size_t>(k)];
      const auto touch = [&](int i) {
        if (i < 0) return;
        Life& life = lives[static_cast<size_t>(i)];
        life.begin = std::min(life.begin, k);
        life.end = std::max(life.end, k);
        life.pinned =
            life.pinned || op.communication || op.block != nullptr || op.schema->makes_views;
      };
      for (const int i : op.inputs) touch(i);
      for (const int i : op.outputs) {
        touch(i);
        if (i >= 0) lives[static_cast<size_t>(i)].writers += 1;
      }
      for (const int i : op.block_vars) touch(i);
    }
    for (Life& life : lives) {
      // What is made before the shards begin must outlive all of them.
      if (life.begin < plan_.head && life.end >= plan_.head) {
        life.end = std::max(life.end, plan_.tail);
      }
    }
    for (const PlanFetch& fetch : plan_.fetches)
      lives[static_cast<size_t>(fetch.var)].pinned = true;
    return lives;
  }

  // The buffer of an input whose elements variable i has (Kernel::views); or -1. Neither may be
  // written again, and images in blocks of channels, which the host alone has, lie in another
  // order.
  int buffer_viewed(int i, const std::vector<Life>& lives) const {
    const Life& life = lives[static_cast<size_t>(i)];
    const PlanOp& op = plan_.ops[static_cast<size_t>(life.begin)];
    if (op.place.is_cpu() || life.writers > 1) return -1;
    for (const Kernel& kernel : kernels_of(op, plan_.vars[static_cast<size_t>(i)])) {
      for (const Kernel::View& view : kernel.views) {
        const int input = viewed_input(op, view, i);
        if (input < 0 || lives[static_cast<size_t>(input)].writers > 1) continue;
        return plan_.vars[static_cast<size_t>(input)].buffer;
      }
    }
    return -1;
  }

  // The variable that output i is a view of; or -1.
  int viewed_input(const PlanOp& op, const Kernel::View& view, int i) const {
    const VarDesc* output = var_desc(i);
    const bool is_output = output != nullptr && op.op->output(view.output).size() == 1 &&
                           op.op->output(view.output).front() == output->name;
    if (!is_output) return -1;
    for (const int input : op.inputs) {
      const VarDesc* desc = var_desc(input);
      const bool fits = desc != nullptr && desc->dtype == output->dtype &&
                        op.op->input(view.input).size() == 1 &&
                        op.op->input(view.input).front() == desc->name &&
                        plan_.vars[static_cast<size_t>(input)].place == op.place;
      if (fits && (view.reshapes || desc->shape == output->shape)) return input;
    }
    return -1;
  }

  // The buffer of an input that op k reads last and may write its output i over; or -1.
  int buffer_of_input(int i, int k, const std::vector<Shared>& buffers) const {
    const PlanOp& op = plan_.ops[static_cast<size_t>(k)];
    const auto kernels = kernels_of(op, plan_.vars[static_cast<size_t>(i)]);
    const bool in_place = std::all_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
      const bool numbers = kernel.images == ImageOrder::kChannels && var_desc(i)->shape.rank() < 2;
      return kernel.in_place && !numbers;
    });
    if (kernels.empty() || !in_place) return -1;
    for (const int input : op.inputs) {
      const int b = plan_.vars[static_cast<size_t>(input)].buffer;
      if (b < 0) continue;
      const Shared& buffer = buffers[static_cast<size_t>(b)];
      const bool dies = buffer.free_after == k && buffer.last == var_desc(input) &&
                        buffer.place == plan_.vars[static_cast<size_t>(i)].place;
      if (dies && buffer.suits(var_desc(i))) return b;
    }
    return -1;
  }

  const VarDesc* var_desc(int i) const { return plan_.vars[static_cast<size_t>(i)].desc; }

  // Kernels that may compute an op on tensors of the variable's type.
  std::span<const Kernel> kernels_of(const PlanOp& op, const PlanVar& var) const {
    if (var.desc == nullptr || op.communication || op.copies || op.block != nullptr) return {};
    return plan_.kernels->find(op.op->type, op.place.kind, var.desc->dtype);
  }

  PlanData& plan_;
};

}  // namespace

void plan_buffers(PlanData& plan) {
  BufferPlanner planner(plan);
  planner.plan_buffers();
  planner.find_images();
}

}  // namespace fleet::fluid
