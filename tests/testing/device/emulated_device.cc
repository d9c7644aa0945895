#include "tests/testing/device/emulated_device.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fluid/core/device_memory.h"

namespace fleet::testing {
namespace {

constexpr size_t kBytes = size_t{1} << 30;  // of addresses

std::atomic<uint64_t> g_kernels_run = 0;
std::atomic<uint64_t> g_bytes_copied = 0;
std::atomic<uint64_t> g_late_copies = 0;
std::atomic<uint64_t> g_copies_begun = 0;
std::atomic<int> g_looks_of_copies = 0;

// The memory of all devices, which only they may touch.
class Memory {
 public:
  Memory() {
    void* memory =
        mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(memory);
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) mprotect(begin_, kBytes, PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) mprotect(begin_, kBytes, PROT_NONE);
  }

  bool contains(const std::byte* at) const { return at >= begin_ && at < begin_ + kBytes; }

  void limit(size_t bytes) { left_ = bytes; }

  std::byte* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = std::bit_ceil(std::max<size_t>(bytes, 64));
    if (size > left_) throw std::bad_alloc();
    left_ -= size;
    std::vector<std::byte*>& free = free_[size];
    if (!free.empty()) {
      std::byte* memory = free.back();
      free.pop_back();
      return memory;
    }
    if (size > kBytes - used_) throw std::bad_alloc();
    used_ += size;
    return begin_ + used_ - size;
  }
  void give_back(std::byte* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_[std::bit_ceil(std::max<size_t>(bytes, 64))].push_back(memory);
  }

 private:
  std::mutex mutex_;
  std::byte* begin_ = nullptr;
  size_t used_ = 0;
  size_t left_ = std::numeric_limits<size_t>::max();
  int users_ = 0;
  std::map<size_t, std::vector<std::byte*>> free_;
};

Memory& memory() {
  static auto* const kMemory = new Memory;  // tensors may outlive everything else
  return *kMemory;
}

class DeviceAllocator final : public Allocator {
 public:
  std::byte* allocate(size_t bytes) override { return memory().take(bytes); }
  void deallocate(std::byte* given, size_t bytes) noexcept override {
    memory().give_back(given, bytes);
  }
};

// The bytes are there when somebody has looked in vain a few times, how often differs from copy to
// copy, or waits.
class LateCopier final : public fluid::HostCopier {
 public:
  void start(const void* from, size_t bytes) override {
    const DeviceAccess access;
    const auto* const begin = static_cast<const std::byte*>(from);
    read_.assign(begin, begin + bytes);
    if (bytes_.size() < bytes) bytes_ = Buffer(bytes);
    const int looks = g_looks_of_copies;
    looks_left_ = looks > 0 ? looks : 1 + static_cast<int>(g_copies_begun++ % 7);
    under_way_ = true;
  }
  bool done() override {
    if (under_way_ && --looks_left_ == 0) wait();
    return !under_way_;
  }
  void wait() override {
    if (!std::exchange(under_way_, false)) return;
    std::copy(read_.begin(), read_.end(), bytes_.data());
    g_bytes_copied += read_.size();
    ++g_late_copies;
  }
  const Buffer& bytes() const override { return bytes_; }

 private:
  std::vector<std::byte> read_;
  Buffer bytes_;
  int looks_left_ = 0;
  bool under_way_ = false;
};

class TwoDevices final : public fluid::EmulatedDevices {
 public:
  int count() const override { return 2; }

  Allocator& allocator(const fluid::Place& place) override {
    if (place.device == 0 || place.device == 1) {
      return allocators_[static_cast<size_t>(place.device)];
    }
    throw_error(ErrorCode::kNotSupported, {.what = "there is no such device",
                                           .where = "place " + place.to_string(),
                                           .expected = "cuda:0 or cuda:1",
                                           .got = place.to_string(),
                                           .fix = "choose another place"});
  }

  void copy(void* to, const fluid::Place&, const void* from, const fluid::Place&,
            size_t bytes) override {
    const DeviceAccess access;
    std::memcpy(to, from, bytes);
    g_bytes_copied += bytes;
  }

  std::unique_ptr<fluid::HostCopier> host_copier(const fluid::Place&) override {
    return std::make_unique<LateCopier>();
  }

 private:
  std::array<DeviceAllocator, 2> allocators_;
};

using fluid::Tensor;
using fluid::Value;

// The same memory, said to be at another place.
Tensor said_to_be_at(const fluid::Place& place, const Tensor& tensor) {
  Tensor same(tensor.dtype(), tensor.shape(), tensor.buffer(), tensor.offset(), place);
  same.share_lod(tensor);
  return same;
}

// The same of what a value holds.
Value said_to_be_at(const fluid::Place& place, const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) return said_to_be_at(place, *tensor);
  Value same = value;
  if (auto* rows = std::get_if<fluid::SelectedRows>(&same)) {
    rows->value = said_to_be_at(place, rows->value);
  }
  return same;
}

// The elements of a value; null where it has none.
const Tensor* elements_of(const Value& value) {
  const auto* rows = std::get_if<fluid::SelectedRows>(&value);
  const Tensor* tensor = rows != nullptr ? &rows->value : std::get_if<Tensor>(&value);
  return tensor != nullptr && tensor->initialized() ? tensor : nullptr;
}

// A kernel of the CPU that computes in the device's memory.
class OnDevice final : public fluid::Prepared {
 public:
  // For each input, whether the kernel is given it in host memory.
  OnDevice(std::unique_ptr<fluid::Prepared> kernel, std::vector<bool> on_host, size_t outputs)
      : kernel_(std::move(kernel)),
        on_host_(std::move(on_host)),
        inputs_(on_host_.size()),
        outputs_(outputs) {
    for (Value& value : inputs_) input_places_.push_back(&value);
    for (Value& value : outputs_) output_places_.push_back(&value);
  }

  void run(const fluid::KernelContext& context) override {
    const DeviceAccess access;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i] = seen_by_host(context.input_value(static_cast<int>(i)), on_host_[i]);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i] = seen_by_host(context.output_value(static_cast<int>(i)), false);
    }
    fluid::KernelContext host(input_places_, output_places_, context.scratch());
    host.set_step(context.step(), context.shard());
    kernel_->run(host);
    context.add_written(host.written());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      take_back(outputs_[i], context.output_value(static_cast<int>(i)), context.place());
    }
    ++g_kernels_run;
  }

 private:
  static Value seen_by_host(const Value& value, bool on_host) {
    const Tensor* elements = elements_of(value);
    if (elements == nullptr) return value;
    if (elements->place().is_cpu() != on_host) {
      throw std::logic_error("a device's kernel is given what is at another place");
    }
    return said_to_be_at(fluid::CPUPlace(), value);
  }

  static void take_back(Value& made, Value& value, const fluid::Place& place) {
    const Tensor* elements = elements_of(made);
    if (elements == nullptr) return;
    if (memory().contains(elements->raw())) {
      value = said_to_be_at(place, made);
    } else {
      fluid::copy_value(made, value, place);
    }
    made = std::monostate();
  }

  std::unique_ptr<fluid::Prepared> kernel_;
  std::vector<bool> on_host_;
  std::vector<Value> inputs_, outputs_;
  std::vector<Value*> input_places_, output_places_;
};

bool makes_rows(const fluid::PrepareContext& context) {
  const fluid::VarDesc* made = context.output_var("W@GRAD");
  return made != nullptr && made->kind == fluid::VarKind::kSelectedRows;
}

fluid::Kernel on_device(const std::string& op, const fluid::Kernel& kernel) {
  fluid::Kernel moved = kernel;
  // Without orders of images nobody would know which of its operands are numbers of a channel.
  moved.in_place = kernel.in_place && kernel.images != fluid::ImageOrder::kChannels;
  moved.images = fluid::ImageOrder::kPlain;
  moved.takes_rows = true;
  if (op == "lookup_table_grad" || op == "lookup_table_v2_grad") moved.host_slots = {"Ids"};
  moved.prepare = [prepare = kernel.prepare,
                   slots = moved.host_slots](fluid::PrepareContext& context) {
    auto prepared = prepare(context);
    if (prepared == nullptr) return std::unique_ptr<fluid::Prepared>();
    std::vector<bool> on_host;
    for (const auto& [slot, names] : context.op().inputs) {
      const bool read_there = !slots.empty() && slots.front() == slot && makes_rows(context);
      on_host.insert(on_host.end(), names.size(), read_there);
    }
    return std::unique_ptr<fluid::Prepared>(std::make_unique<OnDevice>(
        std::move(prepared), std::move(on_host), context.outputs().size()));
  };
  return moved;
}

}  // namespace

DeviceAccess::DeviceAccess() {
  memory().open();
}

DeviceAccess::~DeviceAccess() {
  memory().close();
}

void emulate_two_devices() {
  static auto* const kDevices = new TwoDevices;
  fluid::emulate_devices(kDevices);
}

fluid::KernelTable kernels_with_device_ops(
    const std::function<bool(const std::string& op)>& chosen) {
  fluid::KernelTable table;
  for (const auto& row : fluid::KernelTable::standard().rows()) {
    if (row.device != fluid::DeviceKind::kCpu) continue;
    for (const fluid::Kernel& kernel : row.kernels) {
      table.add_last(row.op, row.device, row.dtype, kernel);
      if (!chosen(row.op)) continue;
      table.add_last(row.op, fluid::DeviceKind::kCuda, row.dtype, on_device(row.op, kernel));
    }
  }
  return table;
}

void limit_device_memory(size_t bytes) {
  memory().limit(bytes);
}

uint64_t device_kernels_run() {
  return g_kernels_run;
}

uint64_t device_bytes_copied() {
  return g_bytes_copied;
}

void delay_late_copies(int looks) {
  g_looks_of_copies = looks;
}

uint64_t late_copies() {
  return g_late_copies;
}

}  // namespace fleet::testing
