#include "fluid/program/program.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/program/live_blocks.h"
#include "fluid/program/verify.h"

namespace fleet::fluid {
namespace {

uint64_t next_program_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

std::string var_text(const VarDesc& var) {
  std::string text = var.name + " : " + std::string(var_kind_name(var.kind));
  if (var.typed) text += str_cat(" ", dtype_name(var.dtype), var.shape);
  if (var.lod_level != 0) text += str_cat(" lod_level=", var.lod_level);
  if (var.is_parameter) text += var.trainable ? " parameter" : " parameter(frozen)";
  if (var.persistable) text += " persistable";
  if (var.stop_gradient) text += " stop_gradient";
  if (var.is_data) text += " data";
  if (var.learning_rate != 1.0) text += " learning_rate=" + shortest(var.learning_rate);
  for (const auto* penalty : {&var.regularizer, &var.gradient_clip}) {
    if (!*penalty) continue;
    text += " " + (*penalty)->kind + "(";
    for (const auto& [name, value] : (*penalty)->values) text += name + "=" + shortest(value) + " ";
    text.back() = ')';
  }
  if (!var.do_model_average) text += " not_averaged";
  if (var.slice) text += str_cat(" slice_of=", var.slice->origin, "+", var.slice->offset);
  return text;
}

// For writing; what others share stays theirs, and stays as long as this block.
template <class T>
T& edit(Shared<T>& handle, std::vector<Shared<T>>& former) {
  if (handle.is_shared()) former.push_back(handle);
  return handle.edit();
}

}  // namespace

Block::Block(Program* program, int32_t index, int32_t parent) noexcept
    : program_(program), index_(index), parent_(parent) {}

Block::Block(Program* program, const Block& other)
    : program_(program),
      index_(other.index_),
      parent_(other.parent_),
      forward_block_(other.forward_block_),
      vars_(other.vars_),
      ops_(other.ops_) {}

const VarDesc& Block::add_var(VarDesc var) {
  const size_t there = vars_.find(var.name);
  if (there == VarTable::kNone) return vars_.at(vars_.add(std::move(var)));
  return edit(vars_.handle(there), former_vars_) = std::move(var);
}

const VarDesc* Block::find_var(std::string_view name) const {
  const size_t found = vars_.find(name);
  return found == VarTable::kNone ? nullptr : &vars_.at(found);
}

VarDesc* Block::find_var(std::string_view name) {
  const size_t found = vars_.find(name);
  return found == VarTable::kNone ? nullptr : &var_at(found);
}

VarDesc& Block::var_at(size_t position) {
  edit(vars_.handle(position), former_vars_);
  return vars_.handle(position).open();
}

const VarDesc* Block::find_var_recursive(std::string_view name) const {
  for (const Block* block = this;;) {
    if (const VarDesc* var = block->find_var(name)) return var;
    if (block->parent_ < 0) return nullptr;
    block = &program_->block(block->parent_);
  }
}

VarDesc* Block::find_var_recursive(std::string_view name) {
  for (Block* block = this;;) {
    if (VarDesc* var = block->find_var(name)) return var;
    if (block->parent_ < 0) return nullptr;
    block = &program_->block(block->parent_);
  }
}

const VarDesc& Block::var(std::string_view name) const {
  if (const VarDesc* found = find_var_recursive(name)) return *found;
  std::vector<std::string> names;
  for (const VarDesc* known : vars()) names.push_back(known->name);
  throw_error(ErrorCode::kUnknownName,
              {.what = str_cat("no variable '", name, "'", did_you_mean(name, names)),
               .where = str_cat("block ", index_),
               .expected = "a variable of the program",
               .got = std::string(name),
               .fix = "check the name; Program::to_string() lists all variables"});
}

VarDesc& Block::var(std::string_view name) {
  if (VarDesc* found = find_var_recursive(name)) return *found;
  return const_cast<VarDesc&>(std::as_const(*this).var(name));  // throws
}

VarDesc& Block::edit_var(std::string_view name) {
  for (Block* block = this; block != nullptr;) {
    const size_t found = block->vars_.find(name);
    if (found != VarTable::kNone) return edit(block->vars_.handle(found), block->former_vars_);
    block = block->parent_ < 0 ? nullptr : &program_->block(block->parent_);
  }
  return var(name);  // throws
}

void Block::remove_var(std::string_view name) {
  vars_.remove(name);
}

void Block::rename_var(std::string_view from, std::string_view to) {
  vars_.rename(from, to);
}

std::vector<const VarDesc*> Block::vars() const {
  std::vector<const VarDesc*> sorted = vars_.in_order();
  std::sort(sorted.begin(), sorted.end(),
            [](const VarDesc* a, const VarDesc* b) { return a->name < b->name; });
  return sorted;
}

std::vector<const VarDesc*> Block::parameters() const {
  std::vector<const VarDesc*> found = vars_in_order();
  std::erase_if(found, [](const VarDesc* var) { return !var->is_parameter; });
  return found;
}

Operator& Block::op(size_t i) {
  edit_op(i);
  return ops_[i].open();
}

Operator& Block::edit_op(size_t i) {
  return edit(ops_[i], former_ops_);
}

OpList Block::take_ops() {
  return std::exchange(ops_, {});
}

void Block::set_ops(OpList ops) {
  ops_ = std::move(ops);
}

const Operator& Block::append_op(Operator op) {
  return *ops_.emplace_back(std::move(op));
}

const Operator& Block::insert_op(size_t position, Operator op) {
  const auto at = ops_.begin() + static_cast<std::ptrdiff_t>(position);
  return **ops_.emplace(at, std::move(op));
}

void Block::remove_ops(size_t begin, size_t end) {
  ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(begin),
             ops_.begin() + static_cast<std::ptrdiff_t>(end));
}

std::string Block::to_string() const {
  std::string text = str_cat("block ", index_, " parent ", parent_, "\n");
  for (const VarDesc* var : vars()) text += "  var " + var_text(*var) + "\n";
  for (const auto& op : ops_) text += "  op " + op->to_string() + "\n";
  return text;
}

DistributedVars::DistributedVars(std::vector<DistributedVar> rows) : rows_(std::move(rows)) {}

void DistributedVars::push_back(DistributedVar row) {
  rows_.edit().push_back(std::move(row));
}

bool DistributedVars::operator==(const DistributedVars& other) const {
  return rows() == other.rows();
}

Program::Program() : id_(next_program_id()) {
  blocks_.push_back(std::make_unique<Block>(this, 0, -1));
}

Program::Program(const Program& other)
    : current_block_(other.current_block_),
      random_seed_(other.random_seed_),
      distribution_(other.distribution_),
      runtime_(other.runtime_),
      op_library_(other.op_library_),
      pruned_(other.pruned_),
      id_(next_program_id()) {
  for (const auto& source : other.blocks_) {
    blocks_.push_back(std::make_unique<Block>(this, *source));
  }
}

Program& Program::operator=(const Program& other) {
  if (this != &other) *this = Program(other);
  return *this;
}

Program::Program(Program&& other) noexcept : id_(next_program_id()) {
  *this = std::move(other);
}

Program& Program::operator=(Program&& other) noexcept {
  if (this == &other) return *this;
  blocks_ = std::move(other.blocks_);
  for (const auto& block : blocks_) block->program_ = this;
  current_block_ = other.current_block_;
  random_seed_ = other.random_seed_;
  current_role_ = other.current_role_;
  current_role_var_ = std::move(other.current_role_var_);
  current_name_scope_ = std::move(other.current_name_scope_);
  distribution_ = std::move(other.distribution_);
  runtime_ = std::move(other.runtime_);
  op_library_ = std::move(other.op_library_);
  pruned_ = std::move(other.pruned_);
  return *this;
}

Program::~Program() = default;

const Block& Program::block(int32_t index) const {
  if (index < 0 || index >= block_count()) {
    throw_error(ErrorCode::kInvalidProgram, {.what = "no such block",
                                             .where = "Program::block",
                                             .expected = str_cat("0 to ", block_count() - 1),
                                             .got = str_cat(index),
                                             .fix = "use an index that add_block gave"});
  }
  return *blocks_[static_cast<size_t>(index)];
}

Block& Program::block(int32_t index) {
  return const_cast<Block&>(std::as_const(*this).block(index));
}

Block& Program::add_block(int32_t parent) {
  return *blocks_.emplace_back(std::make_unique<Block>(this, block_count(), parent));
}

namespace {

// Ops of role forward, and those that fetch what they read from other processes.
OpList forward_part(OpList ops) {
  std::set<std::string, std::less<>> read;
  OpList kept;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    const bool other = has_role((*op)->role, OpRole::kRpc) || has_role((*op)->role, OpRole::kDist);
    const auto made = (*op)->output_names();
    const bool wanted = has_role((*op)->role, OpRole::kForward) ||
                        (other && std::any_of(made.begin(), made.end(), [&read](const auto& name) {
                           return read.contains(name);
                         }));
    if (!wanted) continue;
    for (std::string& name : (*op)->input_names()) read.insert(std::move(name));
    kept.push_back(std::move(*op));
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

Program Program::clone(bool for_test) const {
  Program copy = *this;
  if (!for_test) return copy;
  // The copy of a program that must not be run itself may be.
  if (copy.runtime_ != nullptr && copy.runtime_->refusal() != nullptr) copy.runtime_.reset();
  for (const auto& block : copy.blocks_) {
    auto ops = forward_part(block->take_ops());
    for (Shared<Operator>& op : ops) {
      if (op->attrs.contains("is_test")) op.edit().attrs["is_test"] = true;
    }
    block->set_ops(std::move(ops));
  }
  return copy;
}

Program Program::prune(std::span<const std::string> targets,
                       std::span<const std::string> feeds) const {
  for (const std::string& target : targets) (void)global_block().var(target);
  Program pruned = *this;
  Block& block = pruned.global_block();
  std::set<std::string, std::less<>> needed(targets.begin(), targets.end());
  const std::set<std::string, std::less<>> given(feeds.begin(), feeds.end());
  OpList kept;
  auto ops = block.take_ops();
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    const auto outputs = (*op)->output_names();
    const bool wanted = std::any_of(outputs.begin(), outputs.end(), [&](const auto& name) {
      return needed.contains(name) && !given.contains(name);
    });
    if (!wanted) continue;
    for (const std::string& name : (*op)->input_names()) needed.insert(name);
    kept.push_back(std::move(*op));
  }
  std::reverse(kept.begin(), kept.end());
  for (const auto& op : kept) {
    for (const std::string& name : op->output_names()) needed.insert(name);
  }
  block.set_ops(std::move(kept));
  if (!pruned.pruned_) pruned.pruned_ = Shared(std::set<std::string, std::less<>>());
  for (const VarDesc* var : block.vars_in_order()) {
    if (needed.contains(var->name)) continue;
    pruned.pruned_.edit().insert(var->name);
    block.remove_var(std::string(var->name));
  }
  return pruned;
}

std::set<int32_t> live_blocks(const Program& program) {
  std::set<int32_t> live = {0};
  std::vector<int32_t> open = {0};
  const auto reach = [&](BlockRef ref) {
    if (ref.index >= 0 && ref.index < program.block_count() && live.insert(ref.index).second) {
      open.push_back(ref.index);
    }
  };
  while (!open.empty() && program.block_count() > 1) {
    const Block& next = program.block(open.back());
    open.pop_back();
    for (const auto& op : next.ops()) {
      for (const auto& [name, value] : op->attrs) {
        if (const auto* ref = std::get_if<BlockRef>(&value)) reach(*ref);
        if (const auto* refs = std::get_if<std::vector<BlockRef>>(&value)) {
          for (const BlockRef each : *refs) reach(each);
        }
      }
    }
  }
  return live;
}

namespace {

Status misfit(std::string what, const Block& block, const Operator* op, std::string got) {
  return {ErrorCode::kInvalidProgram,
          {.what = std::move(what),
           .where = str_cat("block ", block.index(), op ? ", op '" + op->type + "'" : ""),
           .expected = "a name or block of this program",
           .got = std::move(got),
           .fix = "declare the variable before the op that uses it"}};
}

// Puts the variables of the op's names into `vars`.
Status find_vars(const Block& block, const Operator& op, std::vector<const VarDesc*>& vars) {
  vars.clear();
  for (const SlotMap* slots : {&op.inputs, &op.outputs}) {
    for (const auto& [slot, names] : *slots) {
      for (const std::string& name : names) {
        vars.push_back(name.empty() ? nullptr : block.find_var_recursive(name));
        if (vars.back() == nullptr && !name.empty()) {
          return misfit("an op uses a variable that does not exist", block, &op, name);
        }
      }
    }
  }
  return {};
}

Status check_blocks(const Block& block, const Operator& op) {
  for (const auto& [name, value] : op.attrs) {
    const auto* ref = std::get_if<BlockRef>(&value);
    if (ref != nullptr && ref->index >= block.program().block_count()) {
      return misfit("an op refers to a block that does not exist", block, &op,
                    str_cat(name, " = ", ref->index));
    }
  }
  return {};
}

// `vocabulary`: of a block that has all names of its ops, for a note at those that are in order; 0
// for a block inside another.
Status verify_ops(const Block& block, size_t begin, size_t end, uint64_t vocabulary,
                  const SeeOp& see) {
  std::vector<const VarDesc*> vars;
  for (size_t i = begin; i < end; ++i) {
    const Shared<Operator>& op = block.ops()[i];
    if (!see && vocabulary != 0 && op.note() == vocabulary) continue;
    if (Status found = find_vars(block, *op, vars); !found.ok()) return found;
    if (Status fits = check_blocks(block, *op); !fits.ok()) return fits;
    if (vocabulary != 0) op.set_note(vocabulary);
    if (see) see(*op, vars);
  }
  return {};
}

Status verify_ops(const Block& block, uint64_t vocabulary, const std::function<SeeOp()>& watch) {
  constexpr size_t kOpsOfThread = 8192;
  const size_t count = block.op_count();
  const size_t threads = std::clamp<size_t>(count / kOpsOfThread, 1,
                                            std::max(1U, std::thread::hardware_concurrency()));
  const auto verify_part = [&block, &watch, vocabulary, count, threads](size_t part) {
    return verify_ops(block, count * part / threads, count * (part + 1) / threads, vocabulary,
                      watch ? watch() : nullptr);
  };
  std::vector<std::future<Status>> others;
  for (size_t part = 1; part < threads; ++part) {
    others.push_back(std::async(std::launch::async, verify_part, part));
  }
  Status verified = verify_part(0);
  for (auto other = others.begin(); verified.ok() && other != others.end(); ++other) {
    verified = other->get();
  }
  return verified;
}

}  // namespace

Status verify(const Program& program, const std::function<SeeOp()>& watch) {
  const std::set<int32_t> live = live_blocks(program);
  for (int32_t at = 0; at < program.block_count(); ++at) {
    const Block& block = program.block(at);
    if (block.parent() >= at) {
      return misfit("a block's parent must come before it", block, nullptr,
                    str_cat("parent ", block.parent()));
    }
    if (!live.contains(at)) continue;
    const uint64_t vocabulary = block.parent() < 0 ? block.vocabulary() : 0;
    if (Status verified = verify_ops(block, vocabulary, watch); !verified.ok()) return verified;
  }
  return {};
}

Status Program::verify() const {
  return fluid::verify(*this, nullptr);
}

std::string Program::to_string() const {
  std::string text = str_cat("program seed ", random_seed_, "\n");
  for (const auto& block : blocks_) text += block->to_string();
  for (const DistributedVar& var : distribution_.vars) {
    text += str_cat("distributed ", var.vtype, " ", var.slice, " of ", var.origin, "+", var.offset,
                    " [", join(var.slice_shape, ", "), "] at ", var.endpoint, "\n");
  }
  return text;
}

uint64_t Program::hash() const {
  const auto bytes = to_bytes();
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

RoleGuard::RoleGuard(Program& program, OpRole role, std::vector<std::string> role_var)
    : program_(program),
      saved_role_(std::exchange(program.current_role_, role)),
      saved_role_var_(std::exchange(program.current_role_var_, std::move(role_var))) {}

RoleGuard::~RoleGuard() {
  program_.current_role_ = saved_role_;
  program_.current_role_var_ = std::move(saved_role_var_);
}

NameScopeGuard::NameScopeGuard(Program& program, std::string_view name)
    : program_(program), saved_(program.current_name_scope_) {
  program_.current_name_scope_ += "/" + std::string(name);
}

NameScopeGuard::~NameScopeGuard() {
  program_.current_name_scope_ = std::move(saved_);
}

}  // namespace fleet::fluid
