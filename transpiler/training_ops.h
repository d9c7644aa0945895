// What a transpiler needs to know of a training program: which ops update which parameter, and
// which make the learning rate. A parameter's update is a chain of ops of role optimize that name
// it in role_var: regularizers first, the update op (inputs Param and Grad) among them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::transpiler {

struct UpdatedParam {
  std::string param;
  std::string grad;         // as backward makes it
  std::vector<size_t> ops;  // positions in block 0, in program order
  size_t update = 0;        // the one among them with Param and Grad
};

struct TrainingOps {
  std::vector<UpdatedParam> params;  // in order of the first op of each chain
  std::vector<size_t> lr_ops;        // role lrsched, positions in block 0
  // Variables of the schedule and all that update ops take as LearningRate.
  std::set<std::string, std::less<>> learning_rates;
};

bool is_update_role(const fluid::Operator& op);    // optimize, but not lrsched
bool is_schedule_role(const fluid::Operator& op);  // lrsched, also with optimize

// Throws ProgramError for a program without update ops (minimize was not called), for a parameter
// with two of them, and for an update that cannot move to a server alone: ops of role optimize
// that belong to no parameter or to several, and gradients that ops of role optimize replace
// (grad_clip=).
TrainingOps find_training_ops(const fluid::Program& program);

}  // namespace fleet::transpiler
