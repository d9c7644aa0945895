// Names of a trainer program to places on servers: what its send and recv ops mean.
#pragma once

#include <string>
#include <vector>

#include "fluid/program/program.h"
#include "strategies/parameter_server/client/remote_tensor.h"
#include "strategies/parameter_server/client/server_client.h"

namespace fleet::strategies {

// The index of the server that a program names by its endpoint. Throws ProgramError when it is not
// in the job.
uint32_t server_of(const fluid::Operator& op, const std::string& endpoint,
                   const std::vector<std::string>& server_names);

// The variables of a send op, in the order of its inputs. Throws ProgramError when the op does not
// fit the job, UsageError when a server does not keep what it names.
std::vector<RemoteTensor> places_of_send(const fluid::Operator& op, const ServerClient& client,
                                         const std::vector<std::string>& server_names);

// The variables of a recv op, in the order of its outputs.
std::vector<RemoteTensor> places_of_recv(const fluid::Operator& op, const ServerClient& client,
                                         const std::vector<std::string>& server_names);

// A whole variable as the servers keep it; no parts when none does. Several servers, or slices of
// one, may keep a whole copy each (the powers of Adam): the first, or all of them. Throws when they
// keep only some of it.
enum class Copies { kFirst, kAll };
RemoteTensor places_of_origin(const std::string& origin, const ServerClient& client,
                              Copies copies = Copies::kFirst);
// The rows of a growing table that one server keeps.
RemoteTensor rows_at(const std::string& name, RemoteVariable part, const ServerClient& client);
// The names of the job's growing tables.
std::vector<std::string> growing_tables(const ServerClient& client);
// Every other trained variable of the job, by name, from the slices' origins.
std::vector<RemoteTensor> trained_variables(const ServerClient& client);

}  // namespace fleet::strategies
