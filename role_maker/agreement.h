// What ranks that mpirun or srun started agree on before they know of each other: job id, secret
// and endpoints. Internal to role_maker.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "role_maker/cluster_spec.h"
#include "role_maker/group_exchange.h"

namespace fleet::role_maker {

// Fills job_id and job_secret. Every rank calls it. The secret is made by rank 0 unless all ranks
// have FLEET_JOB_SECRET or FLEET_JOB_SECRET_FILE; when only some have it, all fail and name them.
void agree_on_identity(const Environment& environment, GroupExchange& exchange, ClusterSpec& spec);

// One "host:port" from each rank that offers one, by rank; an empty text from the others. The host
// is POD_IP, else 127.0.0.1 when all ranks are on one machine, else this machine's address. All
// offered ports are held at the same time, so they differ and were free.
std::vector<std::string> agree_on_endpoints(const Environment& environment, GroupExchange& exchange,
                                            bool offer);

}  // namespace fleet::role_maker
