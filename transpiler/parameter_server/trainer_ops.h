// Operators and variables that the trainers' programs of every mode with servers are made of.
#pragma once

#include <string>
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

// By slice: its server, its rows.
Names endpoints_of(const ServerPlan& plan, const PlacedParam& param);
std::vector<int64_t> sections_of(const PlacedParam& param);

// recv of the slices of a parameter; with `whole` of the parameter, which the runtime joins.
fluid::Operator make_recv(const ServerPlan& plan, const PlacedParam& param, int trainer_id,
                          bool whole);
fluid::Operator make_statistic_recv(const ServerPlan& plan, const PlacedStatistic& statistic,
                                    int trainer_id);
fluid::Operator make_barrier(std::string type, fluid::AttributeMap attrs, Names inputs,
                             Names outputs);
fluid::Operator make_fetch_barrier(const ServerPlan& plan, int trainer_id, Names inputs,
                                   Names outputs);
// The slices of a parameter, joined.
fluid::Operator make_concat(const PlacedParam& param, fluid::OpRole role);

// The end of a startup program: the parameters as the servers have them. Returns the number of
// control variables made.
int append_initial_receives(fluid::Program& startup, const ServerPlan& plan, int trainer_id);

}  // namespace fleet::transpiler
