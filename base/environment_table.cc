#include "base/environment_table.h"

#include <array>

namespace fleet {
namespace {

using Variable = EnvironmentVariable;

constexpr std::array kJob = {
    Variable{"FLEET_JOB_ID", "", "text",
             "Name of the job, the same in every process. Without it a hash of the endpoints; of "
             "Slurm's step where there are none, or a random one that MPI hands to all ranks."},
    Variable{"FLEET_JOB_SECRET", "", "text, at least 16 characters",
             "What every connection proves to know. Launchers make one; `openssl rand -hex 32` "
             "does too."},
    Variable{"FLEET_JOB_SECRET_FILE", "", "file",
             "File with the secret, which only its owner may read, or which is root's and a group "
             "of the process may read. Wins over FLEET_JOB_SECRET."},
    Variable{"FLEET_INSECURE", "0", "0 or 1",
             "1: no secret is asked for: any process that reaches a port may join. For tests."},
    Variable{"FLEET_FRAME_INTEGRITY", "on", "on or off",
             "on: frames on TCP carry tags made with the secret, and a changed one ends its "
             "connection. off: servers warn at their start."},
    Variable{"FLEET_FRAME_ENCRYPTION", "off", "on or off",
             "on: control parts and payloads of frames on TCP are encrypted, too."},
    Variable{"FLEET_NCCL_ENCRYPTION", "off", "on or off",
             "on: ranks give NCCL a key made of the job's secret, and it encrypts its own TCP "
             "sockets by TLS, which takes NCCL 2.32 or newer built with TLS_BACKEND=OPENSSL3 "
             "(docs/gpu.md). The same in every rank."},
    Variable{"FLEET_REQUIRE_SAME_BITS", "0", "0 or 1",
             "1: processes with other instruction sets, builds or libraries are refused, since "
             "their results may differ in the last bits. 0: a warning names the difference."},
    Variable{"FLEET_TRANSPORT", "auto", "auto, tcp, unix",
             "How workers reach servers, and ranks each other over sockets. auto: a Unix socket on "
             "the same machine, else TCP."},
    Variable{"FLEET_COLLECTIVES", "auto", "auto, mpi, sockets",
             "What ranks of a collective job exchange tensors over. auto: MPI where its launcher "
             "started the process, else sockets. Where sockets would be used, ranks of one machine "
             "and one user share memory instead, unless FLEET_TRANSPORT is tcp. The same in every "
             "rank."},
    Variable{"FLEET_SOCKET_IFNAME", "", "interfaces, comma separated",
             "The network interface whose address other machines are told, the first of them that "
             "is there; each machine its own. Not set: the one that routes to rank 0 or by default "
             "take, and never a bridge of containers (docker0 and the like)."},
    Variable{"FLEET_DATA_LANES", "1", "connections",
             "Data connections from a worker to each server, the same in every process."},
    Variable{"FLEET_SPARSE_ROWS", "float32", "float32, float16, bfloat16",
             "What float32 rows of tables and of their gradients travel as between workers and "
             "servers, the same in every process. Sums and tables stay float32."},
    Variable{"FLEET_HOT_ROW_STEPS", "0", "steps",
             "A worker of an asynchronous or half-asynchronous job uses a row of a growing table "
             "that it looked up for so many of its steps more before it asks again. 0: it asks in "
             "each step."},
    Variable{"FLEET_SEND_BUFFER", "0", "bytes",
             "What a worker's data connection has under way at most, on TCP. 0: as much as the "
             "system allows. 131072 where several workers share a slow link."},
};

constexpr std::array kWaiting = {
    Variable{"FLAGS_rpc_deadline", "180000", "ms",
             "A request that makes no progress for so long fails, connecting included."},
    Variable{"FLEET_HEARTBEAT_INTERVAL_MS", "1000", "ms", "Time between two heartbeats."},
    Variable{"FLEET_HEARTBEAT_TIMEOUT_MS", "10000", "ms",
             "A process without a heartbeat for so long is lost, and the job ends. Launchers end a "
             "job whose process stays stopped for so long."},
    Variable{"FLEET_RECONNECT_GRACE_MS", "3000", "ms",
             "How long a process of another machine may take to come back when its connection was "
             "lost. On one machine 250 ms."},
    Variable{"FLEET_STALL_REPORT_MS", "8000", "ms",
             "A process that lives but does not advance is named in the log this often."},
    Variable{"FLEET_STALL_DEADLINE_MS", "1800000", "ms",
             "A process that lives but has not advanced for so long ends the job."},
};

constexpr std::array kTraining = {
    Variable{"CPU_NUM", "1", "threads",
             "Threads that run the logical shards of a local step; trainer threads of an "
             "asynchronous worker."},
    Variable{"FLEET_NUM_THREADS", "", "threads",
             "Threads that compute an op of a step; the bits are the same for any number. Not set: "
             "the cores that the process may use, divided by the job's processes that run on the "
             "same ones."},
    Variable{"FLEET_PIN_THREADS", "0", "0 or 1",
             "1: threads that compute ops each stay on one core of the process's share, where it "
             "is known which those are."},
    Variable{"FLAGS_communicator_max_merge_var_num", "0", "gradients",
             "Asynchronous: gradients of a parameter that are merged into one push, at most. 0: "
             "as many as CPU_NUM."},
    Variable{"FLAGS_communicator_send_queue_size", "0", "gradients",
             "Asynchronous: gradients of a parameter that may wait; then the trainer waits. 0: as "
             "many as CPU_NUM."},
    Variable{"FLAGS_communicator_independent_recv_thread", "1", "0 or 1",
             "Asynchronous and GEO: 1: parameters come while the trainer computes. 0: a step ends "
             "when they have come."},
    Variable{"FLAGS_communicator_min_send_grad_num_before_recv", "0", "gradients",
             "Asynchronous: gradients that leave before parameters are asked for again. 0: as many "
             "as CPU_NUM."},
    Variable{"FLAGS_communicator_is_sgd_optimizer", "1", "0 or 1",
             "Asynchronous: 1: merged gradients are added up. 0: averaged. Not set: added up where "
             "every optimizer of the program is sgd or momentum."},
    Variable{"FLAGS_communicator_thread_pool_size", "5", "threads",
             "Asynchronous: upper bound of the threads that send. One sends."},
    Variable{"FLAGS_communicator_send_wait_times", "5", "times",
             "No effect: the thread that sends is woken."},
    Variable{"FLAGS_rpc_retry_times", "3", "times",
             "No effect: requests are retried until FLAGS_rpc_deadline."},
    Variable{"FLAGS_rpc_send_thread_num", "12", "threads",
             "No effect: a request that waits holds no thread. FLEET_DATA_LANES sets the "
             "connections."},
    Variable{"FLAGS_rpc_get_thread_num", "12", "threads", "The same."},
    Variable{"FLAGS_rpc_prefetch_thread_num", "12", "threads", "The same."},
};

constexpr std::array kInspection = {
    Variable{"FLEET_LOG_LEVEL", "", "debug, info, warning, error, off",
             "The least level that is logged. Without it info in the first worker and the first "
             "server of a job, warning in the other processes."},
    Variable{"FLEET_DUMP_PROGRAM", "", "folder",
             "Every process writes its programs and the cluster there, for `fleet-explain`."},
    Variable{"FLAGS_profile", "", "folder",
             "Every executor measures each op, and writes a table and a Chrome trace there."},
    Variable{"FLAGS_check_nan_inf", "0", "0 or 1",
             "1: every executor reports the first op, variable and step with a value that is not "
             "finite."},
    Variable{
        "FLAGS_enable_cublas_tensor_op_math", "", "0 or 1",
        "1: products and convolutions of float32 on GPUs may use TF32, which is faster and has "
        "10 bits of mantissa."},
    Variable{"FLEET_ON_NONFINITE", "stop", "stop or warn",
             "A loss or a parameter that is not finite ends the job, or is reported once."},
    Variable{"FLEET_RESUME", "latest", "latest, none, or a checkpoint's folder",
             "What `fleet::resume` begins with. latest: the newest whole checkpoint of its folder, "
             "if there is one; none: nothing."},
    Variable{"FLEET_SERVER_FOLDERS", "", "folders, separated by :",
             "Where servers may write and read files. Without it their working directory."},
    Variable{"NO_COLOR", "", "any text", "Tools and launchers write without colours."},
    Variable{
        "LC_ALL", "", "locale",
        "`fleet_report` and `fleet-explain` draw with Unicode in a UTF-8 locale, else in ASCII."},
    Variable{"LC_CTYPE", "", "locale", "The same, where LC_ALL is not set."},
    Variable{"LANG", "", "locale", "The same, where neither of them is set."},
};

constexpr std::array kRoles = {
    Variable{"TRAINING_ROLE", "", "TRAINER or PSERVER", "Paddle: what this process is."},
    Variable{"PADDLE_TRAINING_ROLE", "", "TRAINER or PSERVER", "The later name of TRAINING_ROLE."},
    Variable{"PADDLE_PSERVERS_IP_PORT_LIST", "", "host:port, comma separated",
             "Paddle: the servers."},
    Variable{"PADDLE_PSERVERS", "", "hosts, comma separated",
             "The same in release 1.5, whose servers share PADDLE_PORT."},
    Variable{"PADDLE_PORT", "", "port",
             "Paddle: this server's port; with PADDLE_PSERVERS that of all, 6174 unless set."},
    Variable{"POD_IP", "", "host", "Paddle: this server's address."},
    Variable{"PADDLE_PSERVER_ID", "", "number", "Paddle: this server's place in the list."},
    Variable{"PADDLE_TRAINERS_NUM", "", "number", "Paddle: how many workers there are."},
    Variable{"PADDLE_TRAINER_ID", "", "number", "Paddle: this worker's number, from 0."},
    Variable{"PADDLE_TRAINER_ENDPOINTS", "", "host:port, comma separated",
             "Paddle: the workers; without servers, of a collective job."},
    Variable{"PADDLE_CURRENT_ENDPOINT", "", "host:port", "Paddle: this worker's entry."},
    Variable{"RANK", "", "number", "torchrun: this worker's number, from 0."},
    Variable{"WORLD_SIZE", "", "number", "torchrun: how many workers there are."},
    Variable{"MASTER_ADDR", "", "host", "torchrun: address of rank 0."},
    Variable{
        "MASTER_PORT", "", "port",
        "torchrun: a port of rank 0's machine, which torchrun may hold itself: ranks meet at the "
        "next one."},
    Variable{"LOCAL_WORLD_SIZE", "", "number", "torchrun: how many workers this machine has."},
    Variable{"LOCAL_RANK", "", "number",
             "torchrun: this worker's number among them. With LOCAL_WORLD_SIZE it says which share "
             "of the cores is its own (FLEET_NUM_THREADS, FLEET_PIN_THREADS)."},
    Variable{"TORCHELASTIC_RUN_ID", "", "text", "torchrun: part of the job id."},
    Variable{"OMPI_COMM_WORLD_RANK", "", "number", "Open MPI: this worker's number, from 0."},
    Variable{"OMPI_COMM_WORLD_SIZE", "", "number", "Open MPI: how many workers there are."},
    Variable{"OMPI_COMM_WORLD_LOCAL_SIZE", "", "number",
             "Open MPI: how many workers this machine has, for the share of its cores."},
    Variable{"OMPI_COMM_WORLD_LOCAL_RANK", "", "number", "The worker's number among them."},
    Variable{"PMIX_RANK", "", "number", "Set where a launcher of MPI started the process."},
    Variable{"PMI_SIZE", "", "number", "The same, of older launchers."},
    Variable{"SLURM_PROCID", "", "number", "Slurm: this worker's number, from 0."},
    Variable{"SLURM_STEP_ID", "", "number", "Slurm: set in processes that srun started."},
    Variable{"SLURM_STEP_NUM_TASKS", "", "number", "Slurm: how many workers there are."},
    Variable{"SLURM_NTASKS", "", "number", "The same, where SLURM_STEP_NUM_TASKS is not set."},
    Variable{"SLURM_JOB_ID", "", "text",
             "Slurm: part of the job id; where srun brings no PMI, of the port where ranks meet."},
    Variable{"SLURM_STEP_NODELIST", "", "hosts",
             "Slurm without PMI: ranks meet on the first of them."},
    Variable{"SLURM_JOB_NODELIST", "", "hosts", "The same, where SLURM_STEP_NODELIST is not set."},
    Variable{"SLURM_STEP_NUM_NODES", "", "number",
             "Slurm without PMI: 1 says that all ranks are on this machine."},
    Variable{"SLURM_STEP_TASKS_PER_NODE", "", "numbers",
             "Slurm: how many workers each node has, for the share of its cores."},
    Variable{"SLURM_NODEID", "", "number", "Slurm: this node's place in that list."},
    Variable{"SLURM_LOCALID", "", "number", "Slurm: the worker's number on this node."},
    Variable{"SLURM_CPUS_ON_NODE", "", "number", "Slurm: the job's cores on this node."},
    Variable{"PMI_RANK", "", "number", "Set where a launcher of MPI started the process."},
};

constexpr std::array kScheduled = {
    Variable{"PET_NNODES", "", "number", "torchrun, Kubeflow: stands for `launch --nnodes`."},
    Variable{"PET_NODE_RANK", "", "number", "The same for `--node_rank`."},
    Variable{"PET_NPROC_PER_NODE", "", "number, or auto", "The same for `--nproc_per_node`."},
    Variable{"PET_MASTER_ADDR", "", "host", "The same for `--master_addr`."},
    Variable{"PET_MASTER_PORT", "", "port", "The same for `--master_port`."},
    Variable{"SKYPILOT_NUM_NODES", "", "number",
             "SkyPilot: above 1, the next two stand for `--cluster_node_ips` and `--node_ip`."},
    Variable{"SKYPILOT_NODE_IPS", "", "addresses, one a line", "SkyPilot: the nodes of the task."},
    Variable{"SKYPILOT_NODE_RANK", "", "number", "SkyPilot: this node's place in the list."},
};

constexpr std::array kLaunched = {
    Variable{"FLAGS_selected_gpus", "", "number",
             "`launch --gpus`: this rank's GPU, as CUDA numbers those of `CUDA_VISIBLE_DEVICES`. "
             "`fluid::place_named(\"gpu\")` and `fluid::cuda_places()` read it."},
    Variable{
        "CUDA_VISIBLE_DEVICES", "", "list",
        "CUDA's own: the GPUs that a process sees. `launch` gives its ranks those of `--gpus`, "
        "and without that one rank to each that is there."},
    Variable{"FLEET_PROGRESS_FD", "", "descriptor",
             "Where a process writes its progress; set with `--progress` and `--json`."},
    Variable{"FLEET_LOCAL_PROCESSES", "", "number",
             "How many processes of the job the launcher started on this machine; they share its "
             "cores (FLEET_NUM_THREADS)."},
    Variable{"FLEET_LOCAL_INDEX", "", "number", "This process's number among them."},
    Variable{"FLEET_LAUNCH_ID", "", "text", "Marks every process of one run of a launcher."},
    Variable{"FLEET_RESTARTS", "", "number",
             "How often the launcher has started the job again, with `--max_restarts`."},
    Variable{"FLEET_AGENT_SOCKET", "", "text", "Where `fleet_agent` finds its launcher."},
    Variable{"FLEET_AGENT_TOKEN", "", "text", "What `fleet_agent` proves to its launcher."},
    Variable{"DNNL_MAX_CPU_ISA", "", "instruction set",
             "Read by oneDNN; the processes of a job compare it, since it changes the last bits."},
    Variable{
        "FLEET_BENCH_PYTHON", "", "program",
        "Benchmarks: the Python that has JAX, else python3. Without JAX its rows are skipped."},
    Variable{"PATH", "", "folders",
             "Where launchers look for a program that is named without '/'."},
    Variable{"TMPDIR", "/tmp", "folder",
             "Launchers make the job's private folder there when /dev/shm cannot be written."},
};

constexpr std::array kGroups = {
    EnvironmentGroup{"The job and its connections", "Read by `fleet::init` and `attach`.", kJob},
    EnvironmentGroup{"How long to wait", "Read by `fleet::init` and `attach`.", kWaiting},
    EnvironmentGroup{"Training",
                     "Read by `fleet::init` and `attach`; CPU_NUM, FLEET_NUM_THREADS and "
                     "FLEET_PIN_THREADS by each executor when it is made. What the code says wins "
                     "over FLAGS_communicator_* and FLAGS_rpc_*.",
                     kTraining},
    EnvironmentGroup{"Looking inside", "Read by `fleet::init`, executors, tools and launchers.",
                     kInspection},
    EnvironmentGroup{"What a process is",
                     "Read by role makers, by the rules of [role makers](role_makers.md).", kRoles},
    EnvironmentGroup{"Where a node is",
                     "Read by launchers, for options that their command lines leave open.",
                     kScheduled},
    EnvironmentGroup{
        "Launchers and what they start",
        "Launchers set the first ones for the processes they start, and read PATH and TMPDIR.",
        kLaunched},
};

}  // namespace

std::span<const EnvironmentGroup> environment_table() {
  return kGroups;
}

}  // namespace fleet
