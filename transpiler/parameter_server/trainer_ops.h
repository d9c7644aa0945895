// Operators and variables that the trainers' programs of every mode with servers are made of.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"

namespace fleet::transpiler {

using Names = std::vector<std::string>;

// Declares a control variable, "@DEP@<number>", and returns its name.
std::string add_control_var(fluid::Block& block, int number);

// Declares a slice, called `name`, of the variable `origin` that has the parameter's shape.
void add_slice_var(fluid::Block& block, const PlacedParam& param, const PlacedSlice& slice,
                   const std::string& origin, std::string name);
// Declares the slices of a parameter that is cut, under their own names.
void add_param_slices(fluid::Block& block, const PlacedParam& param);

// By slice: its server, its name, its rows.
Names endpoints_of(const ServerPlan& plan, const PlacedParam& param);
Names slice_names(const PlacedParam& param);
std::vector<int64_t> sections_of(const PlacedParam& param);

// Attributes of ops of one kind that say no more than which servers a parameter is on: made once,
// and shared by the ops of all parameters that are there.
class PlaceAttributes {
 public:
  template <class Make>
  const fluid::AttributeMap& of(const PlacedParam& param, const Make& make) {
    std::vector<int> servers;
    for (const PlacedSlice& slice : param.slices) servers.push_back(slice.server);
    const auto [place, is_new] = made_.try_emplace(std::move(servers));
    if (is_new) place->second = make();
    return place->second;
  }

 private:
  std::map<std::vector<int>, fluid::AttributeMap> made_;
};

// recv of the slices of a parameter.
fluid::Operator make_recv(const ServerPlan& plan, const PlacedParam& param, int trainer_id,
                          PlaceAttributes& attributes);
// recv of the parameter, which the runtime joins from its slices.
fluid::Operator make_whole_recv(const ServerPlan& plan, const PlacedParam& param, int trainer_id);
fluid::Operator make_statistic_recv(const ServerPlan& plan, const PlacedStatistic& statistic,
                                    int trainer_id);
fluid::Operator make_fetch_barrier(const ServerPlan& plan, int trainer_id, Names inputs,
                                   Names outputs);
// The slices of a parameter, joined.
fluid::Operator make_concat(const PlacedParam& param, fluid::OpRole role);

// The end of a startup program: the parameters as the servers have them. Returns the number of
// control variables made.
int append_initial_receives(fluid::Program& startup, const ServerPlan& plan, int trainer_id);

}  // namespace fleet::transpiler
