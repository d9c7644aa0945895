#include "fluid/executor/compiled_program.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/compiled_program_impl.h"
#include "fluid/ops/distributed/rank_sums.h"
#include "fluid/ops/distributed/trainer_program.h"
#include "fluid/ops/grad_names.h"
#include "fluid/ops/nn/sync_batch_norm.h"

namespace fleet::fluid {
namespace {

using GradientScale = BuildStrategy::GradientScaleStrategy;

constexpr const char* kWhere = "CompiledProgram::with_data_parallel";

[[noreturn]] void refuse(ErrorCode code, std::string what, const char* argument,
                         std::string expected, std::string got, std::string fix) {
  throw_error(code, {.what = std::move(what),
                     .where = str_cat(kWhere, ", ", argument),
                     .expected = std::move(expected),
                     .got = std::move(got),
                     .fix = std::move(fix)});
}

bool begins_backward(const Block& block, const std::string& loss) {
  return std::any_of(block.ops().begin(), block.ops().end(), [&](const auto& op) {
    return is_loss_gradient(*op) && op->output_names().front() == grad_name(loss);
  });
}

void check_loss(const Program& program, const std::string& loss) {
  const Block& block = program.global_block();
  const bool trains = std::any_of(block.ops().begin(), block.ops().end(),
                                  [](const auto& op) { return is_loss_gradient(*op); });
  if (loss.empty()) {
    if (!trains) return;
    refuse(ErrorCode::kInvalidArgument, "the program trains, and its loss is not named",
           "loss_name", "the loss that minimize was given", "''", "give its name()");
  }
  if (trains && begins_backward(block, loss)) return;
  refuse(ErrorCode::kUnknownName, "the program does not train with this loss", "loss_name",
         "the loss that minimize was given", "'" + loss + "'",
         "call minimize before, or leave loss_name out of a program that only tests");
}

void check_places(const std::vector<Place>& places) {
  const bool several_gpus =
      places.size() > 1 &&
      std::any_of(places.begin(), places.end(), [](const Place& p) { return !p.is_cpu(); });
  if (!several_gpus) return;
  refuse(ErrorCode::kNotSupported, "replicas on several places need CPUs", "places",
         "cpu places, or one place", str_cat(places.size(), " places"), "give CPUPlace() for each");
}

// The gradient of the loss is fed, one value for each replica.
void feed_loss_gradient(Program& program, const std::string& loss) {
  Block& block = program.global_block();
  OpList kept;
  for (auto& op : block.take_ops()) {
    const bool begins = is_loss_gradient(*op) && op->output_names().front() == grad_name(loss);
    if (!begins) kept.push_back(std::move(op));
  }
  block.set_ops(std::move(kept));
  VarDesc& gradient = block.edit_var(grad_name(loss));
  gradient.is_data = true;
  gradient.shape = Shape{Shape::kUnknown};
}

}  // namespace

CompiledProgram::CompiledProgram(const Program& program, BuildStrategy build_strategy)
    : state_(std::make_shared<State>(State{.program = program})) {
  validate(build_strategy);
  state_->options.build_strategy = std::move(build_strategy);
}

CompiledProgram::~CompiledProgram() = default;
CompiledProgram::CompiledProgram(const CompiledProgram&) = default;
CompiledProgram& CompiledProgram::operator=(const CompiledProgram&) = default;

CompiledProgram& CompiledProgram::with_data_parallel(const std::string& loss_name,
                                                     DataParallelOptions options) {
  State& s = *state_;
  if (s.data_parallel) {
    refuse(ErrorCode::kPrecondition, "the program is data parallel already", "loss_name",
           "one call", "a second one", "make another CompiledProgram");
  }
  validate(options.build_strategy);
  validate(options.exec_strategy);
  check_loss(s.program, loss_name);
  check_places(options.places);
  const auto hints = hints_of(options.build_strategy, options.exec_strategy);
  if (!hints.empty()) {
    options.logger.info("compiled_program", "accepted, and without an effect on results here",
                        {{"fields", join(hints, ",")}});
  }
  s.loss_name = loss_name;
  s.options = std::move(options);
  s.data_parallel = true;
  return *this;
}

Replication CompiledProgram::State::replication(const Place& place) const {
  Replication replicas{.count = static_cast<int>(options.places.size()),
                       .threads = options.exec_strategy.num_threads,
                       .trainers = of_job() ? options.build_strategy.num_trainers : 1,
                       .trainer_id = options.build_strategy.trainer_id,
                       .sums = trains() && options.build_strategy.gradient_scale_strategy !=
                                               GradientScale::kCoeffNumDevice};
  for (const Place& asked : options.places) {
    if (asked == place) continue;
    refuse(ErrorCode::kInvalidArgument, "the executor is not on this place", "places",
           place.to_string(), asked.to_string(), "make the executor for the places");
  }
  return replicas;
}

const Program& CompiledProgram::State::parallel(int replicas) {
  const BuildStrategy& build = options.build_strategy;
  const GradientScale scale = build.gradient_scale_strategy;
  const bool fed = trains() && scale == GradientScale::kCustomized;
  if (!of_job() && !fed && !build.sync_batch_norm) return program;
  if (rewritten) return *rewritten;
  if (of_job() && !read_rank_program(program).sums.empty()) {
    refuse(ErrorCode::kInvalidArgument, "the program sums its gradients over ranks itself",
           "build_strategy.num_trainers", "1", str_cat(build.num_trainers),
           "run the program with Executor::run");
  }
  Program copy = program;
  if (fed) feed_loss_gradient(copy, loss_name);
  if (build.sync_batch_norm) synchronize_batch_norms(copy);
  if (of_job()) {
    if (scale == GradientScale::kCoeffNumDevice) {
      scale_loss_gradient(copy, 1.0 / replicas);
    }
    insert_rank_sums(copy, build.nccl_comm_num);
  }
  rewritten = std::move(copy);
  return *rewritten;
}

const Program* CompiledProgram::State::sharing(const Scope& scope) {
  if (!of_job() || options.share_vars_from != nullptr || !shared.insert(scope.life()).second) {
    return nullptr;
  }
  broadcast.emplace();
  Block& block = broadcast->global_block();
  for (const VarDesc* var : program.global_block().vars()) {
    if (!var->persistable || var->kind != VarKind::kLodTensor) continue;
    const Value* value = scope.find(var->name);
    const auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
    if (tensor == nullptr || !tensor->initialized()) continue;
    block.add_var(*var);
    block.append_op(make_rank_broadcast(var->name, 0));
  }
  return &*broadcast;
}

}  // namespace fleet::fluid
