// The handle to a variable that layers take and give.
#pragma once

#include <string>

#include "fluid/program/program.h"

namespace fleet::fluid {

// Names one variable of a block. Copies name the same variable; the program must outlive them.
class Variable {
 public:
  Variable() = default;
  Variable(Block& block, VarDesc& desc) : block_(&block), desc_(&desc) {}

  explicit operator bool() const { return desc_ != nullptr; }
  Block& block() const { return *block_; }
  VarDesc& desc() const { return *desc_; }
  Program& program() const { return block_->program(); }

  const std::string& name() const { return desc_->name; }
  const Shape& shape() const { return desc_->shape; }
  DType dtype() const { return desc_->dtype; }
  bool stop_gradient() const { return desc_->stop_gradient; }
  void set_stop_gradient(bool stop) const { desc_->stop_gradient = stop; }
  void set_persistable(bool persistable) const { desc_->persistable = persistable; }

 private:
  Block* block_ = nullptr;
  VarDesc* desc_ = nullptr;
};

}  // namespace fleet::fluid
