// What kinds of ops a plan tells apart by their types.
#include <algorithm>
#include <array>
#include <iterator>

#include "fluid/executor/plan.h"

namespace fleet::fluid {
namespace {

constexpr std::string_view kCommunication[] = {"c_allreduce_sum",
                                               "c_broadcast",
                                               "c_comm_init",
                                               "c_comm_init_all",
                                               "c_gen_nccl_id",
                                               "c_local_sgd",
                                               "c_sync_calc_stream",
                                               "c_sync_comm_stream",
                                               "checkpoint_notify",
                                               "distributed_lookup_table",
                                               "exchange_rows",
                                               "fetch_barrier",
                                               "gen_nccl_id",
                                               "listen_and_serv",
                                               "prefetch",
                                               "recv",
                                               "send",
                                               "send_barrier"};

}  // namespace

bool is_communication(std::string_view op_type) {
  return std::binary_search(std::begin(kCommunication), std::end(kCommunication), op_type);
}

bool runs_block(std::string_view op_type) {
  constexpr std::array<std::string_view, 6> kTypes = {
      "conditional_block", "conditional_block_grad", "recurrent", "recurrent_grad", "while",
      "while_grad"};
  return std::binary_search(kTypes.begin(), kTypes.end(), op_type);
}

}  // namespace fleet::fluid
