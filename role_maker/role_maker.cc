#include "role_maker/role_maker.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "role_maker/agreement.h"
#include "role_maker/contracts.h"
#include "role_maker/variable_reader.h"

namespace fleet::role_maker {
namespace {

[[noreturn]] void fail_question(const ClusterSpec& spec, const char* question) {
  throw_error(ErrorCode::kPrecondition,
              {.what = str_cat(question, "() was asked in the wrong role"),
               .where = spec.process_name(),
               .expected = spec.is_server() ? "a worker" : "a server",
               .got = std::string(to_string(spec.role)),
               .fix = "ask is_worker() or is_server() first"});
}

// Of arguments: errors have the constructor's words.
void fill_identity(const char* role_maker, ClusterSpec& spec, std::string job_id) {
  spec.contract = Contract::kArguments;
  for (const char* field : {"mode", "role", "index", "worker_num", "server_num", "worker_endpoints",
                            "server_endpoints"}) {
    spec.origins[field] = "argument";
  }
  spec.origins["job_id"] = job_id.empty() ? "hash of the endpoints" : "argument";
  spec.job_id = job_id.empty() ? derived_job_id(spec) : std::move(job_id);
  try {
    spec.validate();
  } catch (const Error& error) {
    ErrorText text = error.text();
    if (text.where == "index") text.where = "current_id";
    if (text.where == "server_num") text.where = "server_endpoints";
    text.where = str_cat(role_maker, ", ", text.where);
    throw_error(error.code(), std::move(text));
  }
}

void check_world(const GroupExchange& exchange, const ClusterSpec& spec) {
  if (exchange.rank() == spec.index && exchange.size() == spec.worker_num) return;
  const bool slurm = spec.contract == Contract::kSlurm;
  fail_environment(
      {.what = "MPI and the environment disagree about this process",
       .where = slurm ? "SLURM_PROCID, SLURM_NTASKS" : "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE",
       .expected = str_cat("rank ", spec.index, " of ", spec.worker_num, ", as the variables say"),
       .got = str_cat("rank ", exchange.rank(), " of ", exchange.size(), " in MPI"),
       .fix = slurm ? "start the processes with srun --mpi=pmix"
                    : "start the processes with the mpirun of the Open MPI they are linked with"});
}

}  // namespace

void RoleMakerBase::generate_role() {
  cluster_spec();
}

const ClusterSpec& RoleMakerBase::cluster_spec() {
  if (!spec_) {
    ClusterSpec spec = decide();
    spec.validate();
    spec_ = std::move(spec);
  }
  return *spec_;
}

int RoleMakerBase::worker_index() {
  if (!is_worker()) fail_question(cluster_spec(), "worker_index");
  return cluster_spec().index;
}

int RoleMakerBase::server_index() {
  if (!is_server()) fail_question(cluster_spec(), "server_index");
  return cluster_spec().index;
}

PaddleCloudRoleMaker::PaddleCloudRoleMaker(PaddleCloudOptions options, Environment environment)
    : PaddleCloudRoleMaker(options, std::move(environment), nullptr) {}

PaddleCloudRoleMaker::PaddleCloudRoleMaker(PaddleCloudOptions options, Environment environment,
                                           std::unique_ptr<GroupExchange> exchange)
    : options_(options), environment_(std::move(environment)), exchange_(std::move(exchange)) {}

ClusterSpec PaddleCloudRoleMaker::decide() {
  ClusterSpec spec = read_environment(environment_, options_.is_collective);
  const bool over_mpi = spec.contract == Contract::kOpenMpi ||
                        (spec.contract == Contract::kSlurm && spec.rendezvous.empty());
  if (over_mpi) {
    if (!exchange_) exchange_ = mpi_exchange();
    check_world(*exchange_, spec);
    agree_on_identity(environment_, *exchange_, spec);
  }
  return spec;
}

UserDefinedRoleMaker::UserDefinedRoleMaker(UserDefinedOptions options) {
  spec_.mode = Mode::kParameterServer;
  spec_.role = options.role;
  spec_.index = options.current_id;
  spec_.worker_num = options.worker_num;
  spec_.server_num = static_cast<int>(options.server_endpoints.size());
  spec_.server_endpoints = std::move(options.server_endpoints);
  fill_identity("UserDefinedRoleMaker", spec_, std::move(options.job_id));
}

UserDefinedCollectiveRoleMaker::UserDefinedCollectiveRoleMaker(
    UserDefinedCollectiveOptions options) {
  spec_.mode = Mode::kCollective;
  spec_.index = options.current_id;
  spec_.worker_num = static_cast<int>(options.worker_endpoints.size());
  spec_.worker_endpoints = std::move(options.worker_endpoints);
  fill_identity("UserDefinedCollectiveRoleMaker", spec_, std::move(options.job_id));
}

MPISymetricRoleMaker::MPISymetricRoleMaker(Environment environment)
    : MPISymetricRoleMaker(std::move(environment), nullptr) {}

MPISymetricRoleMaker::MPISymetricRoleMaker(Environment environment,
                                           std::unique_ptr<GroupExchange> exchange)
    : environment_(std::move(environment)), exchange_(std::move(exchange)) {}

ClusterSpec MPISymetricRoleMaker::decide() {
  if (!exchange_) exchange_ = mpi_exchange();
  const int size = exchange_->size();
  if (size < 2 || size % 2 != 0) {
    fail_environment(
        {.what = "the MPISymetric role maker needs pairs of processes",
         .where = "the size of the MPI world",
         .expected = "2, 4, 6, …: even ranks are servers, odd ranks workers",
         .got = str_cat(size),
         .fix = str_cat("start the program with mpirun -np ", size < 2 ? 2 : size + 1)});
  }
  const int rank = exchange_->rank();
  ClusterSpec spec;
  spec.mode = Mode::kParameterServer;
  spec.role = rank % 2 == 0 ? Role::kServer : Role::kWorker;
  spec.index = rank / 2;
  spec.worker_num = size / 2;
  spec.server_num = size / 2;
  spec.contract = Contract::kMpiSymetric;
  for (const char* field : {"mode", "role", "index", "worker_num", "server_num"}) {
    spec.origins[field] = "MPI rank and size";
  }
  spec.origins["server_endpoints"] = "agreed over MPI";
  agree_on_identity(environment_, *exchange_, spec);
  const auto endpoints = agree_on_endpoints(environment_, *exchange_, spec.is_server());
  for (size_t i = 0; i < endpoints.size(); i += 2) spec.server_endpoints.push_back(endpoints[i]);
  return spec;
}

}  // namespace fleet::role_maker
