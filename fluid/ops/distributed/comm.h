// The communication ops, as data. Their kernels talk to the CommRuntime that the execution context
// carries (fluid/kernels/comm_runtime.h); the engine itself knows no network.
//
// Parameter servers. Endpoints are "host:port", one for each variable of the slot:
//   send             X+ -> Out?: each variable goes to its server
//   send_barrier     X* -> Out?: this worker has sent all of its step
//   recv             X* -> Out+: each variable comes from its server
//   fetch_barrier    X* -> Out*: this worker has received all of its step
//   listen_and_serv  X* ->: serves until every worker is done; runs its optimize blocks
//   split_byref      X -> Out+: rows of X in `sections`, without copying
//   exchange_rows    X* -> Out: between servers: the rows of Out, from all servers that have some
// Out of send and of the barriers is a control variable that orders the ops; X takes them.
//
// Collectives. A ring is a communicator among all ranks:
//   gen_nccl_id          -> NCCLID: the id of the job's communicators
//   c_gen_nccl_id        -> Out: the id of one ring
//   c_comm_init          X ->: makes ring `ring_id` from its id
//   c_comm_init_all      ->: makes ring `ring_id` among the devices of this process
//   c_broadcast          X -> Out: the value of rank `root`
//   c_allreduce_sum      X -> Out: the sum over ranks, of every logical shard
//   c_allreduce_max, c_allreduce_min, c_allreduce_prod
//                        X -> Out: element by element over the ranks
//   c_allgather          X -> Out: the rows of all ranks, by rank
//   c_reducescatter      X -> Out: the rank's part of the rows of the sum over ranks
//   c_local_sgd          X+, Loss?, LearningRate? -> Out+: now and then, when the job's schedule
//                        says so, the mean of X over the ranks
//   c_sync_calc_stream   X -> Out: what follows sees finished computation
//   c_sync_comm_stream   X -> Out: what follows sees finished communication of `ring_id`
// In the programs of transpilers X and Out are the same variables. Gradients: that of
// c_allreduce_sum is the sum of Out's over the ranks; c_allgather and c_reducescatter are each
// other's. The others have none.
#pragma once

#include "fluid/ops/op_schema.h"
#include "fluid/program/server_mode.h"

namespace fleet::fluid {

struct SendAttrs {
  std::vector<std::string> epmap;
  // With runtime split: rows of each part of X and the names that the parts have on the servers.
  std::vector<int64_t> sections;
  std::vector<std::string> send_varnames;
  int32_t num = 0;
  int32_t trainer_id = 0;
  bool merge_add = false;        // the server adds to what it has
  bool use_send_handler = true;  // false: a notification (the learning-rate counter)
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epmap), CEREAL_NVP(sections), CEREAL_NVP(send_varnames), CEREAL_NVP(num),
       CEREAL_NVP(trainer_id), CEREAL_NVP(merge_add), CEREAL_NVP(use_send_handler));
  }
};

struct SendBarrierAttrs {
  std::vector<std::string> endpoints;  // of all servers
  int32_t trainer_id = 0;
  bool half_async = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(endpoints), CEREAL_NVP(trainer_id), CEREAL_NVP(half_async));
  }
};

struct RecvAttrs {
  std::vector<std::string> epmap;
  // With runtime split: the names that the parts of Out have on the servers.
  std::vector<std::string> recv_varnames;
  std::vector<std::string> varnames;
  int32_t trainer_id = 0;
  int32_t do_not_run = 0;
  bool with_barrier = true;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epmap), CEREAL_NVP(recv_varnames), CEREAL_NVP(varnames), CEREAL_NVP(trainer_id),
       CEREAL_NVP(do_not_run), CEREAL_NVP(with_barrier));
  }
};

struct FetchBarrierAttrs {
  std::vector<std::string> endpoints;  // of all servers
  int32_t trainer_id = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(endpoints), CEREAL_NVP(trainer_id));
  }
};

struct SplitByrefAttrs {
  std::vector<int64_t> sections;  // rows of each output
  int32_t num = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(sections), CEREAL_NVP(num));
  }
};

// Rows that several servers made, put together on each of them. Part i, `varnames[i]`, has
// `sections[i]` rows and is made on `epmap[i]`; the parts follow each other in Out. X holds the
// parts that this server made, none when it made none; a part may be Out itself. Servers run these
// ops only in exchange blocks (ListenAndServAttrs::exchange_blocks).
struct ExchangeRowsAttrs {
  std::vector<std::string> varnames;
  std::vector<int64_t> sections;
  std::vector<std::string> epmap;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(varnames), CEREAL_NVP(sections), CEREAL_NVP(epmap));
  }
};

// listen_and_serv's distributed_mode, Paddle's number of a form of programs: 0 synchronous, 1 and 2
// asynchronous with and without `runtime_split` (whole variables in send and recv), 3 GEO.
constexpr int32_t distributed_mode_of(ServerMode mode, bool runtime_split) {
  if (is_synchronous(mode)) return 0;
  if (sends_differences(mode)) return 3;
  return runtime_split ? 1 : 2;
}

struct ListenAndServAttrs {
  std::string endpoint;
  int32_t pserver_id = -1;
  int32_t fanin = 1;             // attribute Fanin: contributors of a step
  int32_t distributed_mode = 0;  // distributed_mode_of
  bool dc_asgd = false;
  std::vector<BlockRef> optimize_blocks;
  std::vector<std::string> grad_to_block_id;               // "<gradient>:<block>"
  std::vector<std::string> sparse_grad_to_param;           // "<gradient>:<parameter>"
  std::vector<std::string> prefetch_var_name_to_block_id;  // "<variable>:<block>"
  // Updates that need more than one slice (docs/transpiler.md, "Exchanges"). The block of a
  // gradient (grad_to_block_id) is then the first of a chain: "<block>:<next>" in next_blocks; the
  // k-th step of every chain waits for exchange block k. Without exchanges both are empty.
  std::vector<BlockRef> exchange_blocks;
  std::vector<std::string> next_blocks;
  int32_t lr_decay_block_id = -1;
  int32_t checkpint_block_id = -1;  // Paddle's spelling
  int32_t rpc_get_thread_num = 12;
  int32_t rpc_send_thread_num = 12;
  int32_t rpc_prefetch_thread_num = 12;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(endpoint), CEREAL_NVP(pserver_id), cereal::make_nvp("Fanin", fanin),
       CEREAL_NVP(distributed_mode), CEREAL_NVP(dc_asgd), CEREAL_NVP(optimize_blocks),
       CEREAL_NVP(grad_to_block_id), CEREAL_NVP(sparse_grad_to_param),
       CEREAL_NVP(prefetch_var_name_to_block_id), CEREAL_NVP(exchange_blocks),
       CEREAL_NVP(next_blocks), CEREAL_NVP(lr_decay_block_id), CEREAL_NVP(checkpint_block_id),
       CEREAL_NVP(rpc_get_thread_num), CEREAL_NVP(rpc_send_thread_num),
       CEREAL_NVP(rpc_prefetch_thread_num));
  }
};

struct GenNcclIdAttrs {
  std::vector<std::string> trainers;  // endpoints by rank
  int32_t trainer_id = 0;
  int32_t nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int32_t hierarchical_allreduce_inter_nranks = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(trainers), CEREAL_NVP(trainer_id), CEREAL_NVP(nccl_comm_num),
       CEREAL_NVP(use_hierarchical_allreduce), CEREAL_NVP(hierarchical_allreduce_inter_nranks));
  }
};

struct CGenNcclIdAttrs {
  std::string endpoint;                      // of this rank
  std::vector<std::string> other_endpoints;  // of the other ranks, in order
  int32_t rank = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(endpoint), CEREAL_NVP(other_endpoints), CEREAL_NVP(rank));
  }
};

struct CCommInitAttrs {
  int32_t nranks = 1;
  int32_t rank = 0;
  int32_t ring_id = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(nranks), CEREAL_NVP(rank), CEREAL_NVP(ring_id));
  }
};

struct CCommInitAllAttrs {
  std::vector<int64_t> devices;  // empty: all
  int32_t ring_id = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(devices), CEREAL_NVP(ring_id));
  }
};

struct CBroadcastAttrs {
  int32_t ring_id = 0;
  int32_t root = 0;
  bool use_calc_stream = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(ring_id), CEREAL_NVP(root), CEREAL_NVP(use_calc_stream));
  }
};

struct CAllReduceAttrs {
  int32_t ring_id = 0;
  bool use_calc_stream = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(ring_id), CEREAL_NVP(use_calc_stream));
  }
};

// c_allgather and c_reducescatter.
struct CRowsAttrs {
  int32_t nranks = 1;
  int32_t ring_id = 0;
  bool use_calc_stream = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(nranks), CEREAL_NVP(ring_id), CEREAL_NVP(use_calc_stream));
  }
};

struct CSyncCommStreamAttrs {
  int32_t ring_id = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(ring_id));
  }
};

void add_comm_ops(OpTable& table);

}  // namespace fleet::fluid
