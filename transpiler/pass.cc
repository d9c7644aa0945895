#include "transpiler/pass.h"

#include <vector>

#include "base/strings.h"
#include "fluid/ops/append.h"

namespace fleet::transpiler {
namespace {

// Runs the check and puts the pass's name into what it throws.
template <class Check>
void named(std::string_view pass, const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    ErrorText text = error.text();
    text.where = str_cat("after pass '", pass, "', ", text.where);
    throw_error(error.code(), std::move(text));
  }
}

}  // namespace

std::span<const std::string_view> pass_names() {
  static constexpr std::string_view kNames[] = {
      "add_learning_rate_block", "add_optimize_blocks",  "add_sum_blocks",
      "append_averages",         "append_counter_send",  "append_gen_nccl_id",
      "append_initial_receives", "append_initialisers",  "append_listen",
      "append_post_update_ops",  "append_receives",      "append_scheduled_average",
      "append_send_barrier",     "append_start_notice",  "append_step_notice",
      "broadcast_parameters",    "declare_deltas",       "declare_slices",
      "fake_remote_tables",      "fuse_all_reduces",     "init_communicators",
      "insert_all_reduces",      "insert_change_sums",   "insert_sends",
      "leave_row_states_out",    "place_remote_lookups", "remove_update_ops",
      "remove_update_state",     "rename_gradients",     "scale_loss_gradient",
      "send_statistics",         "send_table_gradients", "start_trainer_counters",
      "stop_counting",           "sum_trainer_counters", "take_post_update_ops",
      "take_snapshots",
  };
  return kNames;
}

void PassRunner::run(fluid::Program& program, std::span<const Pass> passes) const {
  std::vector<const Pass*> running;
  for (const Pass& pass : passes) {
    if (pass.needed && !skip.contains(pass.name)) running.push_back(&pass);
  }
  for (const Pass* pass : running) {
    if (observer) observer({pass->name, pass->purpose, false, program});
    pass->apply(program);
    named(pass->name, [&] {
      if (verify_each || pass == running.back()) {
        fluid::verify(program);  // names, blocks and parents too
      } else {
        program.verify().throw_if_error();
      }
    });
    if (observer) observer({pass->name, pass->purpose, true, program});
  }
  if (running.empty()) fluid::verify(program);
}

}  // namespace fleet::transpiler
