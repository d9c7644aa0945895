#include "fluid/kernels/cpu/nn/onednn_call_impl.h"
#include "fluid/kernels/cpu/one_openmp_thread_impl.h"

namespace fleet::fluid::cpu {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine kEngine(dnnl::engine::kind::cpu, 0);
  return kEngine;
}

OneDnnCall::OneDnnCall(const dnnl::primitive& primitive, const std::vector<OneDnnOperand>& operands,
                       size_t scratchpad_bytes)
    : stream_(onednn_engine()),
      primitive_(primitive),
      scratchpad_bytes_(scratchpad_bytes),
      scratch_bytes_(aligned(scratchpad_bytes)) {
  for (const OneDnnOperand& operand : operands) {
    Slot slot;
    slot.plain = dnnl::memory(operand.plain, onednn_engine(), nullptr);
    slot.output = operand.output;
    slot.moves = operand.plain != operand.wanted;
    slot.wanted = slot.moves ? dnnl::memory(operand.wanted, onednn_engine(), nullptr) : slot.plain;
    if (slot.moves) {
      slot.bytes = operand.wanted.get_size();
      scratch_bytes_ += aligned(slot.bytes);
      slot.reorder = slot.output ? dnnl::reorder(slot.wanted, slot.plain)
                                 : dnnl::reorder(slot.plain, slot.wanted);
    }
    arguments_.emplace(operand.argument, slot.wanted);
    slots_.push_back(std::move(slot));
  }
  const auto bytes = static_cast<dnnl::memory::dim>(scratchpad_bytes);
  scratchpad_ = dnnl::memory({{bytes}, dnnl::memory::data_type::u8, dnnl::memory::format_tag::a},
                             onednn_engine(), nullptr);
  arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
}

void OneDnnCall::run(std::initializer_list<void*> data, std::byte* scratch) {
  const OneOpenMpThread alone;
  scratchpad_.set_data_handle(scratch);
  std::byte* at = scratch + aligned(scratchpad_bytes_);
  auto pointer = data.begin();
  for (Slot& slot : slots_) {
    slot.plain.set_data_handle(*pointer++);
    if (!slot.moves) continue;
    slot.wanted.set_data_handle(at);
    at += aligned(slot.bytes);
    if (!slot.output) slot.reorder.execute(stream_, slot.plain, slot.wanted);
  }
  primitive_.execute(stream_, arguments_);
  for (Slot& slot : slots_) {
    if (slot.moves && slot.output) slot.reorder.execute(stream_, slot.wanted, slot.plain);
  }
  stream_.wait();
}

OneDnnReorder::OneDnnReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to)
    : moves_(from != to),
      stream_(onednn_engine()),
      from_(from, onednn_engine(), nullptr),
      to_(to, onednn_engine(), nullptr) {
  if (moves_) reorder_ = dnnl::reorder(from_, to_);
}

void OneDnnReorder::run(const void* from, void* to) {
  const OneOpenMpThread alone;
  from_.set_data_handle(const_cast<void*>(from));
  to_.set_data_handle(to);
  reorder_.execute(stream_, from_, to_);
  stream_.wait();
}

}  // namespace fleet::fluid::cpu
