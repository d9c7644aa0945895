// Values that copies of a program share until one of them changes its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace fleet::fluid {

namespace internal {

inline uint64_t next_identity() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace internal

// A handle to a value of its own or to one that copies of the handle share; empty when it was moved
// from. Different handles may be used by different threads, even to one value.
template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(T value)
      : cell_(std::make_unique<Cell>(std::move(value), internal::next_identity()).release()) {}
  Shared(const Shared& other) {
    if (!other) return;
    if (other.cell_->opened) {
      *this = Shared(*other.cell_);
    } else {
      cell_ = other.cell_;
      cell_->handles.fetch_add(1, std::memory_order_relaxed);
    }
  }
  Shared(Shared&& other) noexcept : cell_(std::exchange(other.cell_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(cell_, other.cell_);
    return *this;
  }
  ~Shared() {
    if (cell_ == nullptr) return;
    if (cell_->handles.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const std::unique_ptr<Cell> last(cell_);
  }

  explicit operator bool() const { return cell_ != nullptr; }
  const T* get() const { return cell_ == nullptr ? nullptr : &cell_->value; }
  const T& operator*() const { return cell_->value; }
  const T* operator->() const { return &cell_->value; }

  // One number for this handle, its copies and what becomes of them by edits; no other handle of
  // the process has it.
  uint64_t identity() const { return cell_->identity; }
  // As it is now: an edit gives another number, which no other value of the process has.
  uint64_t version() const { return cell_->version; }

  // What a reader found out about the value, for the next one, who need not be of the same thread:
  // a number, 0 as long as nobody says so. It goes away with an edit, and never stays at a value
  // that is open.
  uint64_t note() const { return cell_->note.load(std::memory_order_relaxed); }
  void set_note(uint64_t note) const {
    if (!cell_->opened) cell_->note.store(note, std::memory_order_relaxed);
  }

  // Other handles have the same value.
  bool is_shared() const { return cell_->handles.load(std::memory_order_acquire) > 1; }
  // For a change: the value is this handle's alone until the handle is copied.
  T& edit() {
    if (is_shared()) *this = Shared(*cell_);
    cell_->version = internal::next_identity();
    cell_->note.store(0, std::memory_order_relaxed);
    return cell_->value;
  }
  // The value is this handle's alone for good: copies of the handle copy it.
  T& open() {
    T& value = edit();
    if (!cell_->opened) cell_->opened = true;
    return value;
  }

 private:
  struct Cell {
    Cell(T own, uint64_t number) : value(std::move(own)), identity(number) {}
    T value;
    uint64_t identity;
    uint64_t version = internal::next_identity();
    std::atomic<uint64_t> note{0};
    std::atomic<uint32_t> handles{1};
    bool opened = false;
  };
  // A value of its own, for a change.
  explicit Shared(const Cell& other)
      : cell_(std::make_unique<Cell>(other.value, other.identity).release()) {}

  Cell* cell_ = nullptr;
};

}  // namespace fleet::fluid
