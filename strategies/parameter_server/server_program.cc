#include "strategies/parameter_server/server_program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/strings.h"

namespace fleet::strategies {
namespace {

[[noreturn]] void throw_program(std::string what, std::string where, std::string expected,
                                std::string got) {
  throw_error(ErrorCode::kInvalidProgram,
              {.what = std::move(what),
               .where = std::move(where),
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = "use the server program that the transpiler made, for this very cluster"});
}

const fluid::Tensor* initialised(const fluid::Scope& scope, const std::string& name) {
  const fluid::Value* value = scope.find(name);
  const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
  return tensor != nullptr && tensor->initialized() ? tensor : nullptr;
}

bool makes(const fluid::Operator& op, const std::string& name) {
  const auto outputs = op.output_names();
  return std::find(outputs.begin(), outputs.end(), name) != outputs.end();
}

OptimizeBlock read_block(const fluid::Program& program, const std::string& binding) {
  const size_t colon = binding.rfind(':');
  const auto index = colon == std::string::npos
                         ? std::nullopt
                         : parse_int(std::string_view(binding).substr(colon + 1));
  if (!index || *index < 1 || *index >= program.block_count()) {
    throw_program("a gradient is bound to no block", "listen_and_serv.grad_to_block_id",
                  "\"<gradient>:<block>\"", binding);
  }
  OptimizeBlock found;
  found.block = static_cast<int32_t>(*index);
  found.gradient = binding.substr(0, colon);
  const fluid::Block& block = program.block(found.block);
  for (size_t i = 0; i < block.op_count(); ++i) {
    const fluid::Operator& op = block.op(i);
    const auto& inputs = op.input("X");
    const bool sums = op.type == "sum" && i == 0 && makes(op, found.gradient) &&
                      std::find(inputs.begin(), inputs.end(), found.gradient) == inputs.end();
    if (sums) found.sum = static_cast<int>(i);
    if (op.type == "scale" && found.sum >= 0 && static_cast<int>(i) == found.sum + 1 &&
        makes(op, found.gradient)) {
      found.scale = static_cast<int>(i);
    }
    const auto& updated = op.output("ParamOut");
    if (!updated.empty()) found.value = updated.front();
  }
  if (found.value.empty()) {
    throw_program("an optimize block updates nothing", str_cat("block ", found.block),
                  "an op with output ParamOut", "none");
  }
  return found;
}

}  // namespace

ServerProgram read_server_program(const fluid::Program& program, const fluid::Operator& listen,
                                  int shards) {
  ServerProgram parsed;
  parsed.listen = fluid::parse_attributes<fluid::ListenAndServAttrs>(listen.type, listen.attrs);
  const bool sync =
      parsed.listen.distributed_mode == static_cast<int32_t>(fluid::ServerMode::kSync);
  if (!sync || parsed.listen.dc_asgd || !parsed.listen.sparse_grad_to_param.empty()) {
    throw_error(ErrorCode::kNotSupported,
                {.what = "this server trains synchronously, with dense parameters",
                 .where = "listen_and_serv",
                 .expected = "distributed_mode 0, no dc_asgd, no sparse gradients",
                 .got = str_cat("distributed_mode ", parsed.listen.distributed_mode),
                 .fix = "transpile with sync_mode"});
  }
  if (parsed.listen.fanin != shards) {
    throw_program("the server program is for another number of contributors",
                  "listen_and_serv.Fanin", str_cat(shards), str_cat(parsed.listen.fanin));
  }
  for (const auto& binding : parsed.listen.grad_to_block_id) {
    parsed.blocks.push_back(read_block(program, binding));
    if (shards > 1 && parsed.blocks.back().sum < 0) {
      throw_program("an optimize block does not begin with the sum over contributors", binding,
                    "sum and scale", "another op");
    }
  }
  std::sort(parsed.blocks.begin(), parsed.blocks.end(),
            [](const OptimizeBlock& a, const OptimizeBlock& b) { return a.value < b.value; });
  return parsed;
}

ServerSteps::ServerSteps(const fluid::Program& program, ServerProgram parsed, int shards,
                         fluid::Scope& scope)
    : program_(program),
      parsed_(std::move(parsed)),
      shards_(shards),
      scope_(scope),
      executor_(fluid::CPUPlace(), scope) {
  full_ = &program_for(shards);
}

// The program without the sums over contributors, averaging over `shards` of them.
fluid::Program ServerSteps::rewrite(int shards) const {
  fluid::Program program = program_;
  program.set_runtime(nullptr);
  for (const auto& parsed : parsed_.blocks) {
    fluid::Block& block = program.block(parsed.block);
    if (parsed.scale >= 0 && shards != shards_) {
      block.op(static_cast<size_t>(parsed.scale)).attrs["scale"] = 1.0 / shards;
    }
    if (parsed.sum >= 0) block.remove_op(static_cast<size_t>(parsed.sum));
  }
  return program;
}

const fluid::Program& ServerSteps::program_for(int shards) {
  auto& program = programs_[shards];
  if (!program) program = std::make_unique<fluid::Program>(rewrite(shards));
  return *program;
}

void ServerSteps::run_rate() {
  executor_.run_block(*full_, parsed_.listen.lr_decay_block_id, scope_);
}

void ServerSteps::run_slice(size_t block, int shards) {
  const fluid::Program& program = shards == shards_ ? *full_ : program_for(shards);
  executor_.run_block(program, parsed_.blocks[block].block, scope_);
}

CatalogueEntry ServerSteps::entry_of(const std::string& name) const {
  const fluid::Tensor& tensor = scope_.tensor(name);
  CatalogueEntry entry;
  entry.name = name;
  entry.dtype = tensor.dtype();
  entry.shape = tensor.shape().to_vector();
  entry.origin = name;
  entry.origin_shape = entry.shape;
  const fluid::VarDesc* desc = program_.global_block().find_var(name);
  if (desc != nullptr && desc->slice) {
    entry.origin = desc->slice->origin;
    entry.origin_shape = desc->slice->origin_shape;
    entry.offset = desc->slice->offset;
    return entry;
  }
  // State that is not cut, but that every slice of its parameter has a copy of.
  for (const auto& row : program_.distribution().vars) {
    if (row.slice == name && row.origin != name) entry.origin = row.origin;
  }
  return entry;
}

// What the block writes besides its slice and gradient, and what outlives the step.
std::vector<std::string> ServerSteps::state_of(const OptimizeBlock& parsed) const {
  std::vector<std::string> names;
  const fluid::Block& block = program_.block(parsed.block);
  for (const auto& op : block.ops()) {
    for (const auto& name : op->output_names()) {
      const bool known = name == parsed.value || name == parsed.gradient ||
                         std::find(names.begin(), names.end(), name) != names.end();
      if (!known && initialised(scope_, name) != nullptr) names.push_back(name);
    }
  }
  return names;
}

ServerModel ServerSteps::make_model() {
  ServerModel model;
  std::set<std::string> taken;
  for (size_t i = 0; i < parsed_.blocks.size(); ++i) {
    const OptimizeBlock& block = parsed_.blocks[i];
    if (initialised(scope_, block.value) == nullptr) {
      throw_error(ErrorCode::kPrecondition,
                  {.what = "a server has no initial value of its slice",
                   .where = block.value,
                   .expected = "the startup program was run on the server's scope",
                   .got = "an empty variable",
                   .fix = "run the server's startup program, or load a model, before serving"});
    }
    CatalogueEntry entry = entry_of(block.value);
    entry.gradient = block.gradient;
    fluid::Value& gradient = scope_.var(block.gradient);
    gradient.emplace<fluid::Tensor>(entry.dtype, fluid::Shape(entry.shape));
    taken.insert({block.value, block.gradient});
    model.shards.push_back(std::make_unique<DenseShard>(
        DenseShardSpec{block.value, block.gradient, state_of(block)}, scope_,
        [this, i](const StepUpdate& update) { run_slice(i, update.shards); }));
    model.catalogue.entries.push_back(std::move(entry));
  }
  model.catalogue.trained = static_cast<uint32_t>(model.shards.size());
  for (const auto& [name, desc] : program_.global_block().vars()) {
    if (!desc->persistable || taken.contains(name) || initialised(scope_, name) == nullptr)
      continue;
    model.catalogue.entries.push_back(entry_of(name));
  }
  for (const auto& entry : model.catalogue.entries) {
    model.tensors.push_back(&scope_.tensor(entry.name));
  }
  if (parsed_.listen.lr_decay_block_id >= 0) {
    model.learning_rate = [this](uint64_t) { run_rate(); };
  }
  return model;
}

}  // namespace fleet::strategies
