#include "transport/socket_collective/message_matcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"

namespace fleet::transport {
namespace {

Status breach(std::string what, int from, std::string expected, std::string got) {
  return Status(ErrorCode::kBadFrame, {.what = std::move(what),
                                       .where = str_cat("messages of rank ", from),
                                       .expected = std::move(expected),
                                       .got = std::move(got),
                                       .fix = {}});
}

}  // namespace

MessageMatcher::MessageMatcher(int rank, int size, uint64_t early_bytes)
    : rank_(rank),
      size_(size),
      most_early_(early_bytes),
      early_(index(size)),
      unposted_(index(size)),
      posted_(index(size)),
      reading_(index(size)) {}

// ---- operations

MessageMatcher::Operation& MessageMatcher::operation(uint64_t sequence) {
  Operation& found = operations_[sequence];
  if (found.with.empty()) found.with.resize(index(size_));
  return found;
}

Status MessageMatcher::begin(const OperationId& id) {
  Operation& begun = operation(id.sequence);
  ++begun.sets;
  if (begun.begun) return {};
  begun.begun = true;
  begun.id = id;
  if (id.sequence < kRollCallSequence) newest_ = std::max(newest_, id.sequence);
  forget_old();
  for (int from = 0; from < size_; ++from) {
    const auto& told = begun.with[index(from)].told;
    if (told && *told != id) return different_operations(id, rank_, told->to_string(), from);
  }
  return {};
}

void MessageMatcher::end(uint64_t sequence) {
  --operation(sequence).sets;
}

bool MessageMatcher::is_forgotten(uint64_t sequence) const {
  return sequence < newest_ - std::min(newest_, kRemembered) && !operations_.contains(sequence);
}

void MessageMatcher::forget_old() {
  const uint64_t limit = newest_ - std::min(newest_, kRemembered);
  for (auto it = operations_.begin(); it != operations_.end() && it->first < limit;) {
    const bool over = it->second.begun && it->second.sets == 0;
    it = over ? operations_.erase(it) : std::next(it);
  }
}

uint32_t MessageMatcher::next_send(uint64_t sequence, int to) {
  return operation(sequence).with[index(to)].sent++;
}

// ---- slots

MessageMatcher::Slot* MessageMatcher::find(Exchange& exchange, uint32_t number) {
  if (number < exchange.first || number - exchange.first >= exchange.slots.size()) return nullptr;
  return &exchange.slots[number - exchange.first];
}

MessageMatcher::Slot& MessageMatcher::slot_at(int from, Exchange& exchange, uint32_t number) {
  const size_t place = number - exchange.first;
  while (exchange.slots.size() <= place) {
    exchange.slots.emplace_back();
    ++unposted_[index(from)];
  }
  return exchange.slots[place];
}

Result<MessageMatcher::Slot*> MessageMatcher::locate(int from, const MessageId& id) {
  Slot* const taken = nullptr;
  if (is_forgotten(id.operation.sequence)) return taken;
  Exchange& exchange = operation(id.operation.sequence).with[index(from)];
  if (id.number < exchange.first) return taken;
  const size_t ahead = size_t{id.number} - exchange.first;
  const size_t more = ahead < exchange.slots.size() ? 0 : ahead + 1 - exchange.slots.size();
  if (unposted_[index(from)] + more > kMostWaiting) {
    return breach("a rank has too many messages under way", from,
                  str_cat("at most ", kMostWaiting, " without a receive"),
                  id.operation.to_string());
  }
  if (!exchange.told) exchange.told = id.operation;
  Slot& slot = slot_at(from, exchange, id.number);
  if (slot.done) return taken;
  slot.told = true;
  slot.bytes = id.bytes;
  return &slot;
}

Status MessageMatcher::keep(int from, Slot& slot, uint64_t bytes) {
  uint64_t& kept = early_[index(from)];
  if (bytes > most_early_ || kept + early_cost(bytes) > most_early_) {
    return breach("a rank sends more than it was told that it may", from,
                  str_cat("at most ", most_early_, " bytes before their receives"),
                  str_cat(bytes, " bytes beside ", kept));
  }
  kept += early_cost(bytes);
  if (bytes > 0) slot.early = Buffer(bytes);
  return {};
}

void MessageMatcher::drop_early(int from, Slot& slot) {
  if (!slot.whole && !slot.early) return;
  early_[index(from)] -= early_cost(slot.bytes);
  slot.early = {};
  slot.whole = false;
}

void MessageMatcher::finish(int from, Slot& slot, uint64_t request) {
  if (slot.early) std::memcpy(slot.memory.data(), slot.early.data(), slot.memory.size());
  drop_early(from, slot);
  slot.done = true;
  slot.request = 0;
  --*slot.open;
  --posted_[index(from)];
  ++received_;
  answers_.push_back({from, request});
}

void MessageMatcher::drop_done(Exchange& exchange) {
  auto& slots = exchange.slots;
  const auto wanted =
      std::find_if(slots.begin(), slots.end(), [](const Slot& s) { return !s.done; });
  const auto done = wanted - slots.begin();
  // In batches, so that what stays is not moved for each of them.
  if (wanted != slots.end() && 2 * static_cast<size_t>(done) < slots.size()) return;
  exchange.first += static_cast<uint32_t>(done);
  slots.erase(slots.begin(), wanted);
}

// ---- this rank's receives

Status MessageMatcher::different_size(const Operation& operation, int from, uint64_t theirs,
                                      uint64_t ours) const {
  const OperationId& told = operation.with[index(from)].told.value_or(operation.id);
  return different_operations(
      operation.id, rank_,
      str_cat(told.to_string(), " (a message of ", theirs, " bytes, not ", ours, ")"), from);
}

Result<uint32_t> MessageMatcher::post(uint64_t sequence, int from, MutableBytes memory,
                                      size_t& open) {
  Operation& called = operation(sequence);
  Exchange& exchange = called.with[index(from)];
  const uint32_t number = exchange.posted++;
  Slot& slot = slot_at(from, exchange, number);
  if (slot.told && slot.bytes != memory.size()) {
    return different_size(called, from, slot.bytes, memory.size());
  }
  slot.posted = true;
  slot.memory = memory;
  slot.open = &open;
  ++open;
  --unposted_[index(from)];
  ++posted_[index(from)];
  if (slot.whole) {
    finish(from, slot, slot.request);
    drop_done(exchange);
  } else if (slot.request != 0) {
    answers_.push_back({from, std::exchange(slot.request, 0)});
  }
  return number;
}

bool MessageMatcher::is_done(uint64_t sequence, int from, uint32_t number) const {
  const auto found = operations_.find(sequence);
  if (found == operations_.end()) return true;
  const Exchange& exchange = found->second.with[index(from)];
  return number < exchange.first || exchange.slots[number - exchange.first].done;
}

bool MessageMatcher::abandon(uint64_t sequence, int from, uint32_t number) {
  Exchange& exchange = operation(sequence).with[index(from)];
  Slot* const slot = find(exchange, number);
  if (slot == nullptr || slot->done) return false;
  const bool reading = slot->reading && !slot->early;
  drop_early(from, *slot);
  --posted_[index(from)];
  slot->done = true;
  drop_done(exchange);
  return reading;
}

// ---- what comes

Status MessageMatcher::compare(int from, const MessageId& id) {
  const auto found = operations_.find(id.operation.sequence);
  if (found == operations_.end() || !found->second.begun) return {};
  Operation& called = found->second;
  if (called.id != id.operation) {
    return different_operations(called.id, rank_, id.operation.to_string(), from);
  }
  const Slot* const slot = find(called.with[index(from)], id.number);
  if (slot == nullptr || slot->done || !slot->posted || slot->memory.size() == id.bytes) return {};
  return different_size(called, from, id.bytes, slot->memory.size());
}

PayloadTarget MessageMatcher::target(int from, const MessageId& id, bool asked_for) {
  const auto located = locate(from, id);
  if (!located.ok()) return PayloadTarget::refuse(located.status());
  Slot* const slot = located.value();
  if (slot == nullptr || slot->whole) return PayloadTarget::discard();
  if (!slot->posted) {
    const Status kept = asked_for ? breach("a message came that nobody asked for", from, "an offer",
                                           id.operation.to_string())
                                  : keep(from, *slot, id.bytes);
    if (!kept.ok()) return PayloadTarget::refuse(kept);
  }
  slot->reading = true;
  reading_[index(from)] = Place{id.operation.sequence, id.number};
  if (slot->posted) return PayloadTarget::into(slot->memory);
  return PayloadTarget::into({slot->early.data(), slot->early.size()}, slot->early.owner());
}

Status MessageMatcher::arrived(int from, const MessageId& id, uint64_t request) {
  reading_[index(from)].reset();
  const auto located = locate(from, id);
  if (!located.ok()) return located.status();
  Slot* const slot = located.value();
  if (slot == nullptr) {
    answers_.push_back({from, request});
    return {};
  }
  slot->reading = false;
  if (slot->posted) {
    finish(from, *slot, request);
    drop_done(operation(id.operation.sequence).with[index(from)]);
    return {};
  }
  slot->request = request;
  if (slot->whole) return {};
  if (id.bytes == 0) {
    if (Status kept = keep(from, *slot, 0); !kept.ok()) return kept;
  }
  slot->whole = true;
  return {};
}

Status MessageMatcher::offered(int from, const MessageId& id, uint64_t request) {
  const auto located = locate(from, id);
  if (!located.ok()) return located.status();
  Slot* const slot = located.value();
  if (slot == nullptr || slot->posted) {
    answers_.push_back({from, request});
  } else if (!slot->whole) {
    slot->request = request;
  }
  return {};
}

void MessageMatcher::interrupted(int from) {
  const auto place = std::exchange(reading_[index(from)], std::nullopt);
  if (!place || !operations_.contains(place->sequence)) return;
  Slot* const slot = find(operation(place->sequence).with[index(from)], place->number);
  if (slot == nullptr || !slot->reading) return;
  slot->reading = false;
  drop_early(from, *slot);
}

std::vector<DueAnswer> MessageMatcher::take_waiting() {
  std::vector<DueAnswer> waiting;
  for (auto& [sequence, called] : operations_) {
    for (int from = 0; from < size_; ++from) {
      for (Slot& slot : called.with[index(from)].slots) {
        if (slot.request != 0) waiting.push_back({from, std::exchange(slot.request, 0)});
      }
    }
  }
  return waiting;
}

}  // namespace fleet::transport
