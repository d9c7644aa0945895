#include "fluid/program/program.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/program/live_blocks.h"
#include "fluid/program/var_index.h"

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
  for (const auto& penalty : {var.regularizer, var.gradient_clip}) {
    if (!penalty) continue;
    text += " " + penalty->kind + "(";
    for (const auto& [name, value] : penalty->values) text += name + "=" + shortest(value) + " ";
    text.back() = ')';
  }
  if (!var.do_model_average) text += " not_averaged";
  if (var.slice) text += str_cat(" slice_of=", var.slice->origin, "+", var.slice->offset);
  return text;
}

// Adds, sorted by name, what `make` gives for each variable of the source; they keep their order of
// creation.
template <class Make>
void add_vars(const Block& source, Block& target, const Make& make) {
  std::vector<uint64_t> creations;
  creations.reserve(source.vars().size());
  for (const VarDesc* var : source.vars_in_order()) creations.push_back(var->creation);
  for (const auto& [name, var] : source.vars()) {
    const uint64_t own = var->creation;
    const bool dense = own < creations.size() && creations[own] == own;
    const auto place = dense ? creations.begin() + static_cast<std::ptrdiff_t>(own)
                             : std::lower_bound(creations.begin(), creations.end(), own);
    target.add_var(make(*var)).creation = static_cast<uint64_t>(place - creations.begin());
  }
}

}  // namespace

VarDesc& Block::add_var(VarDesc var) {
  var.creation = next_creation_++;
  // Names that come sorted, as those of a copied block do, need no search.
  const bool last = vars_.empty() || vars_.rbegin()->first < var.name;
  auto& slot = last ? vars_.emplace_hint(vars_.end(), var.name, nullptr)->second : vars_[var.name];
  if (slot) {
    var.creation = slot->creation;
    *slot = std::move(var);
  } else {
    slot = std::make_unique<VarDesc>(std::move(var));
  }
  return *slot;
}

const VarDesc* Block::find_var(std::string_view name) const {
  const auto found = vars_.find(name);
  return found == vars_.end() ? nullptr : found->second.get();
}

VarDesc* Block::find_var(std::string_view name) {
  return const_cast<VarDesc*>(std::as_const(*this).find_var(name));
}

const VarDesc* Block::find_var_recursive(std::string_view name) const {
  for (const Block* block = this;;) {
    if (const VarDesc* var = block->find_var(name)) return var;
    if (block->parent_ < 0) return nullptr;
    block = &program_->block(block->parent_);
  }
}

VarDesc* Block::find_var_recursive(std::string_view name) {
  return const_cast<VarDesc*>(std::as_const(*this).find_var_recursive(name));
}

const VarDesc& Block::var(std::string_view name) const {
  if (const VarDesc* found = find_var_recursive(name)) return *found;
  std::vector<std::string> names;
  for (const auto& [known, var] : vars_) names.push_back(known);
  throw_error(ErrorCode::kUnknownName,
              {.what = str_cat("no variable '", name, "'", did_you_mean(name, names)),
               .where = str_cat("block ", index_),
               .expected = "a variable of the program",
               .got = std::string(name),
               .fix = "check the name; Program::to_string() lists all variables"});
}

VarDesc& Block::var(std::string_view name) {
  return const_cast<VarDesc&>(std::as_const(*this).var(name));
}

void Block::remove_var(std::string_view name) {
  const auto found = vars_.find(name);
  if (found != vars_.end()) vars_.erase(found);
}

void Block::rename_var(std::string_view from, std::string_view to) {
  const auto found = vars_.find(from);
  if (found == vars_.end() || from == to) return;
  auto moved = std::move(found->second);
  vars_.erase(found);
  moved->name = std::string(to);
  vars_[moved->name] = std::move(moved);
}

std::vector<VarDesc*> Block::vars_in_order() const {
  std::vector<VarDesc*> ordered(next_creation_);
  for (const auto& [name, var] : vars_) {
    if (var->creation < ordered.size()) ordered[var->creation] = var.get();
  }
  std::erase(ordered, nullptr);
  if (ordered.size() == vars_.size()) return ordered;
  // Somebody has written over a variable, and its place with it.
  ordered.clear();
  for (const auto& [name, var] : vars_) ordered.push_back(var.get());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const VarDesc* a, const VarDesc* b) { return a->creation < b->creation; });
  return ordered;
}

std::vector<VarDesc*> Block::parameters() const {
  std::vector<VarDesc*> found = vars_in_order();
  std::erase_if(found, [](const VarDesc* var) { return !var->is_parameter; });
  return found;
}

Operator& Block::append_op(Operator op) {
  return *ops_.emplace_back(std::make_unique<Operator>(std::move(op)));
}

Operator& Block::insert_op(size_t position, Operator op) {
  const auto at = ops_.begin() + static_cast<std::ptrdiff_t>(position);
  return **ops_.insert(at, std::make_unique<Operator>(std::move(op)));
}

void Block::remove_ops(size_t begin, size_t end) {
  ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(begin),
             ops_.begin() + static_cast<std::ptrdiff_t>(end));
}

std::string Block::to_string() const {
  std::string text = str_cat("block ", index_, " parent ", parent_, "\n");
  for (const auto& [name, var] : vars_) text += "  var " + var_text(*var) + "\n";
  for (const auto& op : ops_) text += "  op " + op->to_string() + "\n";
  return text;
}

Program::Program() : id_(next_program_id()) {
  blocks_.push_back(std::make_unique<Block>(this, 0, -1));
}

Program::Program(const Program& other)
    : current_block_(other.current_block_),
      random_seed_(other.random_seed_),
      distribution_(other.distribution_),
      runtime_(other.runtime_),
      id_(next_program_id()) {
  for (const auto& source : other.blocks_) {
    auto copy = std::make_unique<Block>(this, source->index(), source->parent());
    copy->set_forward_block(source->forward_block());
    add_vars(*source, *copy, [](const VarDesc& var) { return var; });
    for (const auto& op : source->ops()) copy->append_op(*op);
    blocks_.push_back(std::move(copy));
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
  blocks_.clear();
  for (auto& source : other.blocks_) {
    auto moved = std::make_unique<Block>(this, source->index(), source->parent());
    moved->set_forward_block(source->forward_block());
    moved->set_ops(source->take_ops());
    add_vars(*source, *moved, [](VarDesc& var) { return std::move(var); });
    blocks_.push_back(std::move(moved));
  }
  current_block_ = other.current_block_;
  random_seed_ = other.random_seed_;
  current_role_ = other.current_role_;
  current_role_var_ = std::move(other.current_role_var_);
  current_name_scope_ = std::move(other.current_name_scope_);
  distribution_ = std::move(other.distribution_);
  runtime_ = std::move(other.runtime_);
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

Program Program::clone(bool for_test) const {
  Program copy = *this;
  if (!for_test) return copy;
  copy.runtime_.reset();
  for (const auto& block : copy.blocks_) {
    auto ops = block->take_ops();
    std::erase_if(ops, [](const auto& op) { return !has_role(op->role, OpRole::kForward); });
    for (const auto& op : ops) {
      const auto flag = op->attrs.find("is_test");
      if (flag != op->attrs.end()) flag->second = true;
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
  std::vector<std::unique_ptr<Operator>> kept;
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
  for (const VarDesc* var : block.vars_in_order()) {
    if (!needed.contains(var->name)) block.remove_var(std::string(var->name));
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

Status verify(const Program& program, VarIndex& index) {
  const auto fail = [](std::string what, const Block& block, const Operator* op, std::string got) {
    return Status(ErrorCode::kInvalidProgram,
                  {.what = std::move(what),
                   .where = str_cat("block ", block.index(), op ? ", op '" + op->type + "'" : ""),
                   .expected = "a name or block of this program",
                   .got = std::move(got),
                   .fix = "declare the variable before the op that uses it"});
  };
  const std::set<int32_t> live = live_blocks(program);
  for (int32_t at = 0; at < program.block_count(); ++at) {
    const Block& block = program.block(at);
    if (block.parent() >= at) {
      return fail("a block's parent must come before it", block, nullptr,
                  str_cat("parent ", block.parent()));
    }
    if (!live.contains(at)) continue;
    for (const auto& op : block.ops()) {
      for (const SlotMap* slots : {&op->inputs, &op->outputs}) {
        for (const auto& [slot, names] : *slots) {
          for (const std::string& name : names) {
            if (!name.empty() && index.find(block, name) == nullptr) {
              return fail("an op uses a variable that does not exist", block, op.get(), name);
            }
          }
        }
      }
      for (const auto& [name, value] : op->attrs) {
        const auto* ref = std::get_if<BlockRef>(&value);
        if (ref != nullptr && ref->index >= program.block_count()) {
          return fail("an op refers to a block that does not exist", block, op.get(),
                      str_cat(name, " = ", ref->index));
        }
      }
    }
  }
  return {};
}

Status Program::verify() const {
  VarIndex index(*this);
  return fluid::verify(*this, index);
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
