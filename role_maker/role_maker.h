// Role makers decide what this process is: worker or server, which one, and where the others are.
// The result is a ClusterSpec; nobody else reads role variables.
//
// A role maker is used by one thread. It decides at the first question, or at generate_role(), and
// keeps to that. Wrong variables and arguments throw UsageError with the fix.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "role_maker/cluster_spec.h"
#include "role_maker/group_exchange.h"

namespace fleet::role_maker {

class RoleMakerBase {
 public:
  virtual ~RoleMakerBase() = default;

  void generate_role();

  bool is_worker() { return cluster_spec().is_worker(); }
  bool is_server() { return cluster_spec().is_server(); }
  bool is_first_worker() { return cluster_spec().is_first_worker(); }
  int worker_index();  // throws kPrecondition in a server
  int server_index();  // throws kPrecondition in a worker
  int worker_num() { return cluster_spec().worker_num; }
  int server_num() { return cluster_spec().server_num; }
  const std::vector<std::string>& worker_endpoints() { return cluster_spec().worker_endpoints; }
  const std::vector<std::string>& server_endpoints() { return cluster_spec().server_endpoints; }

  const ClusterSpec& cluster_spec();

 protected:
  virtual ClusterSpec decide() = 0;

 private:
  std::optional<ClusterSpec> spec_;
};

struct PaddleCloudOptions {
  // Unset: the variables say whether the job is collective or has parameter servers.
  std::optional<bool> is_collective = std::nullopt;
};

// From the environment, by the rule of role_maker/contracts.h. Under plain mpirun or srun the
// ranks agree over MPI on a job id and, when the environment has none, on a secret.
class PaddleCloudRoleMaker : public RoleMakerBase {
 public:
  explicit PaddleCloudRoleMaker(PaddleCloudOptions options = {},
                                Environment environment = Environment::of_process());
  // The same with another way to agree than MPI.
  PaddleCloudRoleMaker(PaddleCloudOptions options, Environment environment,
                       std::unique_ptr<GroupExchange> exchange);

 protected:
  ClusterSpec decide() override;

 private:
  PaddleCloudOptions options_;
  Environment environment_;
  std::unique_ptr<GroupExchange> exchange_;
};

struct UserDefinedOptions {
  int current_id = 0;
  Role role = Role::kWorker;
  int worker_num = 0;
  std::vector<std::string> server_endpoints = {};
  std::string job_id = {};  // empty: a hash of the endpoints
};

// A parameter-server job written down by the user. Arguments are checked when it is made.
class UserDefinedRoleMaker : public RoleMakerBase {
 public:
  explicit UserDefinedRoleMaker(UserDefinedOptions options);

 protected:
  ClusterSpec decide() override { return spec_; }

 private:
  ClusterSpec spec_;
};

struct UserDefinedCollectiveOptions {
  int current_id = 0;
  std::vector<std::string> worker_endpoints = {};
  std::string job_id = {};  // empty: a hash of the endpoints
};

// A collective job written down by the user. Arguments are checked when it is made.
class UserDefinedCollectiveRoleMaker : public RoleMakerBase {
 public:
  explicit UserDefinedCollectiveRoleMaker(UserDefinedCollectiveOptions options);

 protected:
  ClusterSpec decide() override { return spec_; }

 private:
  ClusterSpec spec_;
};

// A parameter-server job under plain mpirun: even ranks are servers, odd ranks workers, in an even
// world. Endpoints, job id and secret are agreed over MPI; a server's port was free a moment ago.
// POD_IP, FLEET_JOB_ID and the secret's variables are respected.
class MPISymetricRoleMaker : public RoleMakerBase {
 public:
  explicit MPISymetricRoleMaker(Environment environment = Environment::of_process());
  MPISymetricRoleMaker(Environment environment, std::unique_ptr<GroupExchange> exchange);

 protected:
  ClusterSpec decide() override;

 private:
  Environment environment_;
  std::unique_ptr<GroupExchange> exchange_;
};

}  // namespace fleet::role_maker
