// What a transpiler needs to know of a training program: which ops update which parameter, and
// which make the learning rate. A parameter's update is a chain of ops of role optimize that name
// it in role_var: regularizers first, the update op (inputs Param and Grad) among them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::transpiler {

struct UpdatedParam {
  std::string param;
  std::string grad;         // as backward makes it, before clipping and decay
  std::vector<size_t> ops;  // positions in block 0, in program order
  size_t update = 0;        // the one among them with Param and Grad
};

struct TrainingOps {
  std::vector<UpdatedParam> params;  // in order of the first op of each chain
  // Updates of tables that no trainer has (transpiler/parameter_server/distributed_table.h); in no
  // other list.
  std::vector<UpdatedParam> tables;
  std::vector<size_t> lr_ops;  // role lrsched, positions in block 0
  // Of role optimize and of no parameter, behind the updates: what is made of parameters, such as
  // their averages. Trainers run these ops with the values that come back.
  std::vector<size_t> post_update_ops;
  // Variables of the schedule and all that update ops take as LearningRate, Beta1Tensor and
  // Beta2Tensor.
  std::set<std::string, std::less<>> learning_rates;
};

// In jobs whose servers see one trainer's gradient at a time, what clips a gradient stays on the
// trainer, which has it whole: those ops of role optimize become role backward. They are the ops
// that an update's gradient is made by, but for those that take the parameter: servers have all of
// it, and decay it.
void keep_clips_on_trainer(fluid::Program& program);

// For modes in which gradients are not summed over ranks: throws ProgramError for a program whose
// optimizer compresses them (DGCMomentum). `mode`: in words.
void refuse_compressed_gradients(const fluid::Program& program, const char* mode);
// Throws ProgramError (kNotSupported) for a program with a growing table.
void refuse_growing_tables(const fluid::Program& program, const char* mode);

bool is_update_role(const fluid::Operator& op);     // optimize, but not lrsched
bool is_post_update_op(const fluid::Operator& op);  // as TrainingOps::post_update_ops
bool is_schedule_role(const fluid::Operator& op);   // lrsched, also with optimize

// Throws ProgramError for a program without update ops (minimize was not called), for a parameter
// with two of them, for an update from another gradient than backward made, or from several, for
// dynamic loss scaling, and for other ops of role optimize that belong to no parameter in front of
// an update.
TrainingOps find_training_ops(const fluid::Program& program);

// For servers that update: throws ProgramError for one that takes more of the updates than
// parameters, or changes what they take.
void check_post_update_ops(const fluid::Program& program, const TrainingOps& ops);

}  // namespace fleet::transpiler
