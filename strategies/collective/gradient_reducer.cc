#include "strategies/collective/gradient_reducer.h"

#include <algorithm>
#include <thread>

#include "base/numbers/half.h"
#include "base/strings.h"

namespace fleet::strategies {

using transport::ElementType;
using transport::ShardLayout;

namespace {

constexpr Duration kLook = std::chrono::microseconds(20);

// What floats become on their way.
ElementType on_wire(ElementType type, const GradientReducerOptions& options) {
  return type == ElementType::kFloat32 ? options.wire.value_or(type) : type;
}

}  // namespace

void wait_for(transport::CollectiveToken& token, const GradientReducerOptions& options) {
  const TimePoint deadline = steady_clock().now() + options.timeout;
  // So long it is this rank that does not advance.
  while (!token.begun() && !token.test() && steady_clock().now() < deadline) {
    std::this_thread::sleep_for(kLook);
  }
  const bool waits = options.on_wait != nullptr && !token.test();
  if (waits) options.on_wait(true);
  const Status status = token.wait(deadline);
  if (waits) options.on_wait(false);
  status.throw_if_error();
}

GradientReducer::GradientReducer(transport::CollectiveCommunicator& communicator,
                                 const ShardLayout& layout, GradientReducerOptions options)
    : communicator_(communicator),
      layout_(layout),
      options_(std::move(options)),
      local_shards_(layout.range(communicator.rank()).size()) {
  for (const ShardRange& node : layout.nodes(communicator.rank())) {
    node_sums_.emplace_back(node.size());
  }
}

void GradientReducer::begin_step(uint64_t step) {
  // What a step that ended early left under way.
  for (; next_end_ < used_buckets_ && buckets_[next_end_].started; ++next_end_) {
    end(buckets_[next_end_]);
  }
  step_ = step;
  factor_.reset();
  ++generation_;
  next_slots_.assign(static_cast<size_t>(local_shards_), 0);
  started_ = 0;
  used_buckets_ = 0;
  next_end_ = 0;
  slots_.clear();
}

size_t GradientReducer::add(int local_shard, ElementType type, const void* in, void* out,
                            size_t count) {
  const size_t number = next_slots_[static_cast<size_t>(local_shard)]++;
  if (local_shard > 0 && number >= slots_.size()) {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "a logical shard has more gradients than others",
                 .where = str_cat("shard ", local_shard, " of this rank"),
                 .expected = str_cat(slots_.size(), " gradients"),
                 .got = "one more",
                 .fix = "run the same ops for every shard"});
  }
  Slot& slot = local_shard == 0 ? place(type, count) : slots_[number];
  check_same(slot, type, count, local_shard);
  slot.out = out;
  Bucket& bucket = buckets_[slot.bucket];
  store(bucket, slot, local_shard, in);
  const bool last_of_bucket = number + 1 == bucket.first_slot + bucket.slots;
  if (local_shard + 1 == local_shards_ && bucket.full && last_of_bucket) start(bucket);
  poll();
  return number;
}

void GradientReducer::sum_at_once(std::span<const double* const> shards, double* out,
                                  size_t count) {
  start_to(used_buckets_);
  Bucket& bucket = next_bucket(ElementType::kFloat64);
  bucket.at_once = true;
  bucket.bytes = count * sizeof(double);
  bucket.full = bucket.started = true;
  ++started_;
  std::vector<const void*> parts;
  std::vector<std::vector<double>> sums;
  size_t first = 0;
  for (const TreeSum& node : node_sums_) {
    const auto inputs = static_cast<size_t>(node.inputs());
    std::vector<double>& sum = sums.emplace_back(count);
    tree_sum<double>(shards.subspan(first, inputs), sum.data(), count);
    parts.push_back(sum.data());
    first += inputs;
  }
  bucket.token =
      communicator_.all_reduce(layout_, bucket.type, parts, out, count,
                               {.phase = "sum of shards", .step = static_cast<int64_t>(step_)});
  wait_for(bucket.token, options_);
  bucket.delivered = bucket.ended = true;
}

bool GradientReducer::test(size_t gradient) {
  Bucket& bucket = buckets_[slots_[gradient].bucket];
  return bucket.ended || (bucket.started && bucket.token.test());
}

void GradientReducer::wait(size_t gradient) {
  start_to(slots_[gradient].bucket + 1);
  end(buckets_[slots_[gradient].bucket]);
}

void GradientReducer::lead(size_t gradient) {
  start_to(slots_[gradient].bucket + 1);
  lead(buckets_[slots_[gradient].bucket]);
}

void GradientReducer::lead_all() {
  start_to(used_buckets_);
  for (size_t i = next_end_; i < used_buckets_; ++i) lead(buckets_[i]);
}

void GradientReducer::lead(Bucket& bucket) {
  if (bucket.delivered) return;
  if (bucket.token.lead_compute()) {
    deliver(bucket);
  } else {
    end(bucket);
  }
}

void GradientReducer::wait_for_leads() {
  for (size_t i = next_end_; i < used_buckets_; ++i) {
    if (buckets_[i].delivered) end(buckets_[i]);
  }
}

void GradientReducer::start_to(size_t bucket) {
  for (size_t i = 0; i < bucket; ++i) {
    if (!buckets_[i].started) start(buckets_[i]);
  }
}

void GradientReducer::finish() {
  start_to(used_buckets_);
  for (; next_end_ < used_buckets_; ++next_end_) end(buckets_[next_end_]);
}

// Where the next gradient goes. Depends on sizes and types only, so that all ranks agree.
GradientReducer::Slot& GradientReducer::place(ElementType type, size_t count) {
  const size_t bytes = count * size_of(type);
  const bool alone = bytes >= options_.bucket_bytes;
  const Bucket* open = used_buckets_ > 0 ? &buckets_[used_buckets_ - 1] : nullptr;
  if (open == nullptr || open->full || open->started || open->type != type || alone) {
    begin_bucket(type, bytes);
  }
  Bucket& bucket = buckets_[used_buckets_ - 1];
  Slot slot{used_buckets_ - 1, bucket.bytes, count, type};
  bucket.bytes += bytes;
  bucket.full = bucket.bytes >= options_.bucket_bytes;
  ++bucket.slots;
  return slots_.emplace_back(slot);
}

GradientReducer::Bucket& GradientReducer::next_bucket(ElementType type) {
  if (used_buckets_ == buckets_.size()) buckets_.emplace_back();
  Bucket& bucket = buckets_[used_buckets_++];
  bucket.type = type;
  bucket.bytes = 0;
  bucket.first_slot = slots_.size();
  bucket.slots = 0;
  bucket.full = bucket.started = bucket.delivered = bucket.ended = bucket.at_once = false;
  bucket.lone = nullptr;
  bucket.token = {};
  return bucket;
}

void GradientReducer::begin_bucket(ElementType type, size_t bytes) {
  // What was open before can take no more gradients.
  if (used_buckets_ > 0) {
    Bucket& before = buckets_[used_buckets_ - 1];
    const bool was_open = !before.full;
    before.full = true;
    if (was_open && single_shard() && !before.started) start(before);
  }
  Bucket& bucket = next_bucket(type);
  bucket.shards.resize(static_cast<size_t>(local_shards_));
  const bool in_place = single_shard() && bytes >= options_.bucket_bytes;
  const size_t capacity = std::max(bytes, 2 * options_.bucket_bytes);
  for (Buffer& shard : bucket.shards) {
    if (!in_place && shard.size() < capacity) shard = communicator_.allocate(capacity);
  }
}

void GradientReducer::check_same(const Slot& slot, ElementType type, size_t count,
                                 int shard) const {
  if (slot.type == type && slot.count == count) return;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "the gradients of two logical shards differ",
               .where = str_cat("shard ", shard, " of this rank"),
               .expected = str_cat(slot.count, " elements of ", size_of(slot.type), " bytes"),
               .got = str_cat(count, " elements of ", size_of(type), " bytes"),
               .fix = "run the same ops for every shard"});
}

void GradientReducer::store(Bucket& bucket, const Slot& slot, int local_shard, const void* in) {
  const size_t bytes = slot.count * size_of(slot.type);
  if (single_shard() && bytes >= options_.bucket_bytes) {
    bucket.lone = in;
    return;
  }
  if (bytes == 0) return;
  communicator_.copy(bucket.shards[static_cast<size_t>(local_shard)].data() + slot.offset, in,
                     bytes);
}

bool GradientReducer::is_rounded(const Bucket& bucket) const {
  return on_wire(bucket.type, options_) != bucket.type;
}

void GradientReducer::start(Bucket& bucket) {
  bucket.started = true;
  bucket.full = true;
  ++started_;
  const size_t count = bucket.bytes / size_of(bucket.type);
  const transport::CollectiveLabel label{.phase = "backward", .step = static_cast<int64_t>(step_)};
  std::vector<const void*> parts =
      bucket.lone != nullptr ? std::vector{bucket.lone} : node_sums(bucket, count);
  void* out = bucket.lone != nullptr ? slots_[bucket.first_slot].out : bucket.shards[0].data();
  if (is_rounded(bucket)) {
    round_for_wire(bucket, parts, count);
    out = bucket.wire.data();
  }
  bucket.token =
      communicator_.all_reduce(layout_, on_wire(bucket.type, options_), parts, out, count, label);
}

// Sums each node of this rank into the buffer of its first shard.
std::vector<const void*> GradientReducer::node_sums(Bucket& bucket, size_t count) {
  std::vector<const void*> parts;
  parts.reserve(node_sums_.size());
  size_t first = 0;
  for (const TreeSum& sum : node_sums_) {
    if (sum.inputs() > 1) {
      std::vector<const void*> shards;
      shards.reserve(static_cast<size_t>(sum.inputs()));
      for (int i = 0; i < sum.inputs(); ++i) {
        shards.push_back(bucket.shards[first + static_cast<size_t>(i)].data());
      }
      communicator_.sum(sum, bucket.type, shards, bucket.shards[first].data(), count);
    }
    parts.push_back(bucket.shards[first].data());
    first += static_cast<size_t>(sum.inputs());
  }
  return parts;
}

void GradientReducer::round_for_wire(Bucket& bucket, std::vector<const void*>& parts,
                                     size_t count) const {
  const size_t bytes = count * sizeof(uint16_t);
  if (bucket.wire.size() < bytes * parts.size()) bucket.wire = Buffer(bytes * parts.size());
  const auto round =
      options_.wire == ElementType::kBFloat16 ? &bfloat16_of_float : &float16_of_float;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::byte* const rounded = bucket.wire.data() + i * bytes;
    round(static_cast<const float*>(parts[i]), reinterpret_cast<uint16_t*>(rounded), count);
    parts[i] = rounded;
  }
}

void GradientReducer::end(Bucket& bucket) {
  if (bucket.ended) return;
  wait_for(bucket.token, options_);
  bucket.ended = true;
  if (!bucket.delivered) deliver(bucket);
}

void GradientReducer::deliver(Bucket& bucket) {
  bucket.delivered = true;
  if (!factor_) factor_ = options_.factor ? options_.factor() : 1.0;
  for (size_t i = 0; i < bucket.slots; ++i) {
    const Slot& slot = slots_[bucket.first_slot + i];
    const size_t bytes = slot.count * size_of(slot.type);
    if (bytes == 0) continue;
    if (is_rounded(bucket)) {
      const auto widen =
          options_.wire == ElementType::kBFloat16 ? &float_of_bfloat16 : &float_of_float16;
      widen(reinterpret_cast<const uint16_t*>(bucket.wire.data()) + slot.offset / sizeof(float),
            static_cast<float*>(slot.out), slot.count);
    } else if (bucket.lone == nullptr) {
      communicator_.copy(slot.out, bucket.shards[0].data() + slot.offset, bytes);
    }
    adjust(slot.type, slot.out, slot.count);
  }
}

void GradientReducer::adjust(ElementType type, void* out, size_t count) {
  if (*factor_ != 1.0) communicator_.multiply(type, out, count, *factor_);
}

std::vector<ReductionShape> GradientReducer::shapes() const {
  std::vector<ReductionShape> shapes;
  for (size_t i = 0; i < used_buckets_; ++i) {
    const Bucket& bucket = buckets_[i];
    shapes.push_back(
        {on_wire(bucket.type, options_), bucket.bytes / size_of(bucket.type), bucket.at_once});
  }
  return shapes;
}

std::vector<ReductionShape> GradientReducer::shapes_of(std::span<const ReductionShape> gradients,
                                                       const GradientReducerOptions& options) {
  std::vector<ReductionShape> shapes;
  for (const ReductionShape& gradient : gradients) {
    const auto bytes = [](const ReductionShape& shape) {
      return shape.count * size_of(shape.type);
    };
    const bool joins = !shapes.empty() && !gradient.at_once && !shapes.back().at_once &&
                       bytes(shapes.back()) < options.bucket_bytes &&
                       shapes.back().type == gradient.type &&
                       bytes(gradient) < options.bucket_bytes;
    if (joins) {
      shapes.back().count += gradient.count;
    } else {
      shapes.push_back(gradient);
    }
  }
  for (ReductionShape& shape : shapes) shape.type = on_wire(shape.type, options);
  return shapes;
}

// Any token moves all operations of the communicator on.
void GradientReducer::poll() {
  for (size_t i = next_end_; i < used_buckets_; ++i) {
    if (!buckets_[i].started || buckets_[i].ended) continue;
    (void)buckets_[i].token.test();
    return;
  }
}

}  // namespace fleet::strategies
