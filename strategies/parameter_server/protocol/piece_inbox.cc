#include "strategies/parameter_server/protocol/piece_inbox.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/protocol/pair_sum.h"

namespace fleet::strategies {
namespace {

using transport::PayloadTarget;

constexpr uint64_t kLeastMemory = 64;

// Memory is kept for later by the power of two that it has.
uint64_t rounded(uint64_t bytes) {
  return std::bit_ceil(std::max(bytes, kLeastMemory));
}

}  // namespace

PieceInbox::PieceInbox(const std::vector<SliceGeometry>& slices, const ContributorTable& table,
                       const SumTree& tree, SendOrder order, uint64_t window_bytes,
                       const SyncServerRules& rules, const std::vector<fluid::Value*>& gradients)
    : slices_(slices),
      table_(table),
      tree_(tree),
      order_(std::move(order)),
      window_bytes_(window_bytes),
      rules_(rules),
      gradients_(gradients),
      received_(table.workers()),
      pieces_(order_.size()),
      unsummed_(slices.size()),
      passed_(table.workers()),
      spare_(static_cast<size_t>(std::countr_zero(uint64_t{transport::kPieceBytes})) + 1) {
  for (Piece& piece : pieces_) piece.taken.resize((table.size() + 63) / 64);
}

uint64_t PieceInbox::bytes_of(uint32_t position) const {
  const SendOrder::Piece& piece = order_[position];
  return piece_bytes(slices_[piece.slice].bytes, piece.piece);
}

std::byte* PieceInbox::memory_of(uint32_t position) const {
  const SendOrder::Piece& piece = order_[position];
  return std::get<fluid::Tensor>(*gradients_[piece.slice]).raw() + piece_offset(piece.piece);
}

uint32_t PieceInbox::open_at_begin() const {
  uint64_t cost = 0;
  uint32_t position = 0;
  while (position < order_.size()) {
    cost += bytes_of(position) * table_.size();
    if (position > 0 && cost > window_bytes_) break;
    ++position;
  }
  return position;
}

void PieceInbox::begin(uint64_t step, const std::vector<bool>& active) {
  const Lock lock(mutex_);
  step_ = step;
  active_ = active;
  std::fill(received_.begin(), received_.end(), 0);
  whole_.clear();
  anyone_passed_ = false;
  for (uint32_t worker = 0; worker < table_.workers(); ++worker) {
    passed_[worker] = active[worker] ? 0 : order_.size();
    anyone_passed_ = anyone_passed_ || !active[worker];
  }
  std::fill(unsummed_.begin(), unsummed_.end(), 0);
  for (uint32_t i = 0; i < order_.size(); ++i) {
    Piece& piece = pieces_[i];
    piece.closed = false;
    piece.arrived = 0;
    piece.shards = 0;
    std::fill(piece.taken.begin(), piece.taken.end(), 0);
    ++unsummed_[order_[i].slice];
  }
  open_ = 0;
  cost_ = 0;
  let_in();
  told_open_ = open_;
}

// Contributors whose pieces are still to come when the piece is let in.
uint32_t PieceInbox::awaited_at(uint32_t position) const {
  if (!anyone_passed_) return table_.size();
  uint32_t awaited = 0;
  for (uint32_t worker = 0; worker < table_.workers(); ++worker) {
    if (passed_[worker] <= position) awaited += table_.last_of(worker) - table_.first_of(worker);
  }
  return awaited;
}

void PieceInbox::let_in() {
  // All contributors send in one order, so what is let in completes the first open pieces, and what
  // they cost is then free for the next. One piece is let in whatever it costs: if nothing is under
  // way, nothing else can make room for it.
  while (open_ < order_.size()) {
    const uint32_t awaited = awaited_at(open_);
    const uint64_t cost = awaited * bytes_of(open_);
    if (cost_ > 0 && cost_ + cost > window_bytes_) return;
    Piece& piece = pieces_[open_];
    piece.awaited = awaited;
    piece.cost = cost;
    cost_ += cost;
    ++open_;
    if (awaited == 0) close(open_ - 1, false);
  }
}

void PieceInbox::count_cost(uint32_t position) {
  // The cost is what the piece may still take: memory for each contribution to come, and for each
  // sum that waits for its sibling. A contribution that comes only moves from the first to the
  // second, and two sums that become one give memory back: so it never grows.
  Piece& piece = pieces_[position];
  const uint64_t held = piece.sums == nullptr ? 0 : piece.sums->held();
  const uint64_t cost = piece.closed ? 0 : (piece.awaited + held) * bytes_of(position);
  cost_ = cost_ - piece.cost + cost;
  piece.cost = cost;
}

uint64_t PieceInbox::held_bytes() const {
  const Lock lock(mutex_);
  return used_bytes_ + spare_bytes_;
}

PieceProgress PieceInbox::progress(bool taken) {
  return {step_, taken, std::exchange(told_open_, open_) != open_, open_,
          std::exchange(whole_, {})};
}

uint32_t PieceInbox::received(uint32_t worker) const {
  const Lock lock(mutex_);
  return received_[worker];
}

Status PieceInbox::check_step(const Sender& sender, const PieceKey& key) const {
  if (key.step > 0 && (key.step < step_ || (key.step == step_ && active_[sender.worker]))) {
    return {};
  }
  return ahead_of_server("a gradient", sender.worker, step_, key.step);
}

bool PieceInbox::repeated(const PieceKey& key, const Piece& piece, uint32_t contributor) const {
  const bool known = key.step < step_ || (piece.taken[contributor / 64] >> (contributor % 64) & 1);
  return rules_.drops(known);
}

PayloadTarget PieceInbox::prepare(const Sender& sender, const PieceKey& key, uint32_t contributor,
                                  uint64_t bytes) {
  const Lock lock(mutex_);
  if (Status status = check_step(sender, key); !status.ok()) {
    return PayloadTarget::refuse(std::move(status));
  }
  const uint32_t position = order_.position(key.variable, key.piece);
  const uint64_t size = bytes_of(position);
  if (bytes != size) {
    return PayloadTarget::refuse(
        bad_frame("a piece has the wrong size", str_cat(size, " bytes"), str_cat(bytes, " bytes")));
  }
  const Piece& piece = pieces_[position];
  if (repeated(key, piece, contributor)) return PayloadTarget::discard();
  if (position >= open_) {
    return PayloadTarget::refuse(bad_frame("a piece came before the server let it in",
                                           str_cat("one of the first ", open_, " pieces"),
                                           str_cat("piece ", position, " in the order")));
  }
  Buffer& memory = receiving_[sender.session];
  if (memory) used_bytes_ -= memory.size();
  memory = borrow(size);
  return PayloadTarget::into({memory.data(), size}, memory.owner());
}

Result<PieceProgress> PieceInbox::take(const Sender& sender, const PieceKey& key,
                                       uint32_t contributor, transport::ConstBytes payload) {
  const Lock lock(mutex_);
  if (Status status = check_step(sender, key); !status.ok()) return status;
  const auto incoming = receiving_.find(sender.session);
  const bool lent =
      incoming != receiving_.end() && incoming->second && payload.data() == incoming->second.data();
  if (!lent) return progress(false);  // discarded
  Buffer memory = std::exchange(incoming->second, Buffer());
  const uint32_t position = order_.position(key.variable, key.piece);
  Piece& piece = pieces_[position];
  if (repeated(key, piece, contributor) || payload.size() != bytes_of(position)) {
    give_back(std::move(memory));
    return progress(false);
  }
  piece.taken[contributor / 64] |= uint64_t{1} << (contributor % 64);
  ++received_[sender.worker];
  if (piece.closed) {
    give_back(std::move(memory));
    return progress(true);
  }
  add(position, contributor, std::move(memory));
  let_in();
  return progress(true);
}

void PieceInbox::add(uint32_t position, uint32_t contributor, Buffer memory) {
  Piece& piece = pieces_[position];
  if (piece.sums == nullptr) {
    if (idle_sums_.empty()) {
      idle_sums_.push_back(sums_.emplace_back(std::make_unique<SiblingSums<Buffer>>(tree_)).get());
    }
    piece.sums = idle_sums_.back();
    idle_sums_.pop_back();
  }
  bool in_place = false;
  piece.sums->add(rules_.place(contributor, piece.arrived++), std::move(memory),
                  [&](Buffer left, Buffer right, bool last) {
                    return join(position, std::move(left), std::move(right), last, in_place);
                  });
  piece.shards += table_[contributor].node.size();
  if (piece.awaited > 0) --piece.awaited;
  if (piece.awaited == 0) {
    close(position, in_place);
  } else {
    count_cost(position);
  }
}

Buffer PieceInbox::join(uint32_t position, Buffer left, Buffer right, bool last, bool& in_place) {
  std::byte* out = last ? memory_of(position) : left.data();
  sum_pair(slices_[order_[position].slice].dtype, left.data(), right.data(), out,
           bytes_of(position));
  in_place = last;
  give_back(std::move(right));
  return left;
}

// Nothing more comes for the piece.
void PieceInbox::close(uint32_t position, bool in_place) {
  Piece& piece = pieces_[position];
  if (piece.closed) return;
  if (piece.sums != nullptr) {
    Buffer sum = piece.sums->finish([&](Buffer left, Buffer right, bool last) {
      return join(position, std::move(left), std::move(right), last, in_place);
    });
    if (!in_place) std::memcpy(memory_of(position), sum.data(), bytes_of(position));
    give_back(std::move(sum));
    idle_sums_.push_back(std::exchange(piece.sums, nullptr));
  }
  piece.closed = true;
  count_cost(position);
  const uint32_t slice = order_[position].slice;
  if (--unsummed_[slice] == 0) whole_.push_back(slice);
}

PieceProgress PieceInbox::pass(uint32_t worker, uint32_t position) {
  const Lock lock(mutex_);
  pass_to(worker, position);
  return progress(false);
}

PieceProgress PieceInbox::leave(uint32_t worker) {
  const Lock lock(mutex_);
  active_[worker] = false;
  pass_to(worker, order_.size());
  return progress(false);
}

void PieceInbox::pass_to(uint32_t worker, uint32_t position) {
  position = std::min(position, order_.size());
  const uint32_t before = passed_[worker];
  if (position <= before) return;
  passed_[worker] = position;
  anyone_passed_ = true;
  for (uint32_t i = before; i < std::min(position, open_); ++i) {
    Piece& piece = pieces_[i];
    if (piece.closed) continue;
    for (uint32_t c = table_.first_of(worker); c < table_.last_of(worker); ++c) {
      const bool taken = piece.taken[c / 64] >> (c % 64) & 1;
      if (!taken && piece.awaited > 0) --piece.awaited;
    }
    if (piece.awaited == 0) {
      close(i, false);
    } else {
      count_cost(i);
    }
  }
  let_in();
}

int PieceInbox::shards(uint32_t slice) const {
  const Lock lock(mutex_);
  return pieces_of(slices_[slice].bytes) == 0 ? 0 : pieces_[order_.position(slice, 0)].shards;
}

void PieceInbox::drop_session(uint64_t session) {
  const Lock lock(mutex_);
  const auto found = receiving_.find(session);
  if (found == receiving_.end()) return;
  // The connection may still be writing: the memory is not used again.
  if (found->second) used_bytes_ -= found->second.size();
  receiving_.erase(found);
}

Buffer PieceInbox::borrow(uint64_t bytes) {
  const uint64_t size = rounded(bytes);
  used_bytes_ += size;
  auto& spare = spare_[static_cast<size_t>(std::countr_zero(size))];
  if (spare.empty()) return Buffer(size);
  Buffer memory = std::move(spare.back());
  spare.pop_back();
  spare_bytes_ -= size;
  return memory;
}

void PieceInbox::give_back(Buffer memory) {
  const uint64_t size = memory.size();
  used_bytes_ -= size;
  if (used_bytes_ + spare_bytes_ + size > window_bytes_) return;
  spare_bytes_ += size;
  spare_[static_cast<size_t>(std::countr_zero(size))].push_back(std::move(memory));
}

}  // namespace fleet::strategies
