#include "strategies/parameter_server/client/async_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/row_sum.h"
#include "fluid/kernels/cpu/optimize/update.h"

namespace fleet::strategies {
namespace {

template <class T>
void merge_as(const std::vector<Buffer>& gradients, bool by_sum) {
  T* out = reinterpret_cast<T*>(gradients.front().data());
  const size_t n = gradients.front().size() / sizeof(T);
  for (size_t k = 1; k < gradients.size(); ++k) {
    const T* in = reinterpret_cast<const T*>(gradients[k].data());
    for (size_t i = 0; i < n; ++i) out[i] += in[i];
  }
  if (by_sum) return;
  const T factor = T{1} / static_cast<T>(gradients.size());
  for (size_t i = 0; i < n; ++i) out[i] *= factor;
}

}  // namespace

Buffer merge_gradients(std::vector<Buffer> gradients, fluid::DType dtype, bool by_sum) {
  if (gradients.size() > 1) {
    if (dtype == fluid::DType::kFloat32) {
      merge_as<float>(gradients, by_sum);
    } else if (dtype == fluid::DType::kFloat64) {
      merge_as<double>(gradients, by_sum);
    } else {
      throw_error(ErrorCode::kDTypeMismatch,
                  {.what = "only float32 and float64 gradients are merged",
                   .where = "asynchronous worker",
                   .expected = "float32 or float64",
                   .got = std::string(fluid::dtype_name(dtype)),
                   .fix = "set communicator_max_merge_var_num to 1, and use one trainer thread"});
    }
  }
  return std::move(gradients.front());
}

namespace {

template <class T>
fluid::SelectedRows merge_rows_as(const std::vector<QueuedGradient>& gradients, bool by_sum) {
  const fluid::SelectedRows& first = *gradients.front().rows;
  const fluid::Shape& shape = first.value.shape();
  std::vector<fluid::cpu::MergedRows<T>> merged(gradients.size());
  std::vector<fluid::RowsView<T>> parts;
  for (size_t i = 0; i < gradients.size(); ++i) {
    merged[i].merge(*gradients[i].rows, first.height, shape.numel(1, shape.rank()));
    parts.push_back({merged[i].rows(), merged[i].values()});
  }
  const T factor = by_sum ? T{1} : T{1} / static_cast<T>(gradients.size());
  const auto add = [&](std::span<const T* const> arrays, T* out, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      T sum = arrays[0][i];
      for (size_t k = 1; k < arrays.size(); ++k) sum += arrays[k][i];
      out[i] = sum * factor;
    }
  };
  return fluid::sum_of_parts<T>(parts, first.height, shape, add);
}

}  // namespace

fluid::SelectedRows merge_rows(const std::vector<QueuedGradient>& gradients, bool by_sum) {
  return gradients.front().rows->value.dtype() == fluid::DType::kFloat64
             ? merge_rows_as<double>(gradients, by_sum)
             : merge_rows_as<float>(gradients, by_sum);
}

AsyncWorker::AsyncWorker(AsyncClient& client, const AsyncOptions& options, Events events)
    : client_(client), options_(options), events_(std::move(events)) {}

namespace {

uint32_t number_of(const std::vector<RemoteTensor>& known, const RemoteTensor& tensor) {
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&tensor](const auto& each) { return each.same_place(tensor); });
  return static_cast<uint32_t>(found - known.begin());
}

}  // namespace

uint32_t AsyncWorker::add_gradient(RemoteTensor gradient) {
  const uint32_t known = number_of(gradients_, gradient);
  if (known < gradients_.size()) return known;
  gradients_.push_back(std::move(gradient));
  queues_.emplace_back();
  sent_.push_back(0);
  return static_cast<uint32_t>(gradients_.size() - 1);
}

uint32_t AsyncWorker::add_value(RemoteTensor value) {
  const uint32_t number = number_of(values_, value);
  if (number < values_.size()) return number;
  for (uint32_t k = 0; k < value.parts.size(); ++k) {
    const PartOfValue part{number, k};
    const auto [asked, is_new] = asked_.try_emplace(value.parts[k].remote, part);
    if (!is_new) copies_.push_back({asked->second, part});
  }
  values_.push_back(std::move(value));
  spares_.emplace_back();
  return number;
}

// ---- gradients

void AsyncWorker::enqueue(uint32_t gradient, QueuedGradient queued) {
  queues_[gradient].waiting.push_back(std::move(queued));
  ++queued_;
}

// Takes up to max_merge_var_num gradients from the queue and adds them to the next round.
void AsyncWorker::merge_and_push(uint32_t index) {
  Queue& queue = queues_[index];
  const RemoteTensor& gradient = gradients_[index];
  const size_t count = std::min<size_t>(queue.waiting.size(), options_.max_merge_var_num);
  std::vector<QueuedGradient> taken(
      std::make_move_iterator(queue.waiting.begin()),
      std::make_move_iterator(queue.waiting.begin() + static_cast<std::ptrdiff_t>(count)));
  queue.waiting.erase(queue.waiting.begin(),
                      queue.waiting.begin() + static_cast<std::ptrdiff_t>(count));
  queued_ -= count;
  sent_[index] += count;
  push_merged(gradient, std::move(taken));
  ++pushes_;
  if (events_.on_room) {
    for (size_t i = 0; i < count; ++i) events_.on_room(index);
  }
}

void AsyncWorker::push_merged(const RemoteTensor& gradient, std::vector<QueuedGradient> taken) {
  const auto count = static_cast<uint32_t>(taken.size());
  if (gradient.rows) {
    const fluid::SelectedRows merged = merge_rows(taken, options_.merge_by_sum);
    for (const RemotePart& part : gradient.parts) {
      client_.push_rows(part.remote, clocks_[part.remote] += count, count,
                        rows_of_part(gradient, part, merged));
    }
    return;
  }
  std::vector<Buffer> buffers;
  buffers.reserve(taken.size());
  for (QueuedGradient& queued : taken) buffers.push_back(std::move(queued.memory));
  const Buffer merged = merge_gradients(std::move(buffers), gradient.dtype, options_.merge_by_sum);
  for (const RemotePart& part : gradient.parts) {
    client_.push(part.remote, clocks_[part.remote] += count, count,
                 {merged.data() + part.offset, part.bytes, merged.owner()});
  }
}

// Values that are due are asked for behind gradients, in the same requests.
void AsyncWorker::pump() {
  if (!client_.status().ok()) return;
  std::vector<uint32_t> sent;
  for (uint32_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].waiting.empty() || queues_[i].under_way >= kWindow) continue;
    merge_and_push(i);
    ++queues_[i].under_way;
    sent.push_back(i);
  }
  if (sent.empty()) return;
  std::shared_ptr<ReceivedValues> received;
  if (fetch_is_due()) {
    fetching_ = true;
    std::fill(sent_.begin(), sent_.end(), 0);
    received = std::make_shared<ReceivedValues>();
    want_values(received, false);
  }
  client_.exchange([this, sent = std::move(sent), received](const Status& status) {
    for (const uint32_t i : sent) --queues_[i].under_way;
    if (received != nullptr) {
      fetching_ = false;
      if (status.ok()) take_values(received);
    }
    if (status.ok()) pump();
    round_over(status);
  });
}

bool AsyncWorker::fetch_is_due() const {
  return options_.independent_recv && !fetching_ && !values_.empty() && !sent_.empty() &&
         *std::max_element(sent_.begin(), sent_.end()) >= options_.min_send_grad_num_before_recv;
}

// ---- values

// Memory for a whole value that nobody reads.
fluid::Tensor AsyncWorker::spare_for(size_t value) {
  for (const fluid::Tensor& spare : spares_[value]) {
    if (spare.buffer().unique()) return spare;
  }
  spares_[value].emplace_back(values_[value].dtype, values_[value].shape);
  return spares_[value].back();
}

void AsyncWorker::want_values(const std::shared_ptr<ReceivedValues>& received, bool bounded) {
  received->number = next_number_++;
  received->versions.resize(values_.size());
  for (uint32_t i = 0; i < values_.size(); ++i) {
    received->tensors.push_back(spare_for(i));
    auto& versions = received->versions[i];
    versions.resize(values_[i].parts.size());
    for (uint32_t k = 0; k < versions.size(); ++k) {
      const RemotePart& part = values_[i].parts[k];
      if (asked_.at(part.remote) != PartOfValue{i, k}) continue;
      client_.receive(part.remote, received->tensors[i].raw() + part.offset, part.bytes,
                      {bounded ? gate(part.remote) : 0, &versions[k]});
    }
  }
}

// What several values have in common came once.
void AsyncWorker::copy_common_parts(ReceivedValues& received) const {
  for (const Copy& copy : copies_) {
    if (copy.to.value >= received.tensors.size()) continue;  // known since then
    const RemotePart& from = values_[copy.from.value].parts[copy.from.part];
    const RemotePart& to = values_[copy.to.value].parts[copy.to.part];
    std::memcpy(received.tensors[copy.to.value].raw() + to.offset,
                received.tensors[copy.from.value].raw() + from.offset, to.bytes);
    received.versions[copy.to.value][copy.to.part] =
        received.versions[copy.from.value][copy.from.part];
  }
}

void AsyncWorker::take_values(const std::shared_ptr<ReceivedValues>& received) {
  if (received->number < newest_) return;
  newest_ = received->number;
  copy_common_parts(*received);
  if (events_.on_values) events_.on_values(*received);
}

void AsyncWorker::fetch(transport::DoneHandler on_done) {
  const auto received = std::make_shared<ReceivedValues>();
  want_values(received, false);
  std::fill(sent_.begin(), sent_.end(), 0);
  client_.exchange([this, received, on_done = std::move(on_done)](const Status& status) {
    if (status.ok()) take_values(received);
    if (on_done) on_done(status);
    round_over(status);
  });
}

// The clock of a slice that every worker must have reached for this one to go on.
uint64_t AsyncWorker::gate(RemoteVariable slice) const {
  const auto sent = clocks_.find(slice);
  if (!options_.staleness_bound || sent == clocks_.end()) return 0;
  return sent->second - std::min<uint64_t>(sent->second, *options_.staleness_bound);
}

void AsyncWorker::synchronize(transport::DoneHandler on_done) {
  for (uint32_t i = 0; i < queues_.size(); ++i) {
    while (!queues_[i].waiting.empty()) merge_and_push(i);
  }
  std::fill(sent_.begin(), sent_.end(), 0);
  const auto received = std::make_shared<ReceivedValues>();
  want_values(received, true);
  client_.exchange([this, received, on_done = std::move(on_done)](const Status& status) {
    if (status.ok()) take_values(received);
    if (on_done) on_done(status);
    round_over(status);
  });
}

// ---- ends

void AsyncWorker::when_drained(std::function<void()> then) {
  when_drained_ = std::move(then);
  pump();
  round_over(client_.status());
}

void AsyncWorker::round_over(const Status& status) {
  if (!status.ok() && events_.on_failure) events_.on_failure();
  if (!drained() || !when_drained_) return;
  const auto then = std::exchange(when_drained_, nullptr);
  then();
}

}  // namespace fleet::strategies
