// The handle to a variable that layers take and give.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "fluid/program/program.h"

namespace fleet::fluid {

// Names one variable of a block. Copies name the same variable; the block must outlive them.
class Variable {
 public:
  Variable() = default;
  // The block's variable of that name, which it must have.
  Variable(Block& block, const VarDesc& desc) : Variable(block, desc.name) {}
  Variable(Block& block, std::string_view name)
      : block_(&block), position_(block.position_of(name)) {}

  explicit operator bool() const { return block_ != nullptr; }
  Block& block() const { return *block_; }
  const VarDesc& desc() const { return std::as_const(*block_).var_at(position_); }
  VarDesc& edit() const { return block_->var_at(position_); }
  Program& program() const { return block_->program(); }

  const std::string& name() const { return desc().name; }
  const Shape& shape() const { return desc().shape; }
  DType dtype() const { return desc().dtype; }
  bool stop_gradient() const { return desc().stop_gradient; }
  void set_stop_gradient(bool stop) const { edit().stop_gradient = stop; }
  void set_persistable(bool persistable) const { edit().persistable = persistable; }

 private:
  Block* block_ = nullptr;
  size_t position_ = 0;
};

}  // namespace fleet::fluid
