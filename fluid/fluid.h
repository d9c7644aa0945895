// Everything that a program built and run on one machine needs; also gives the short name `fluid`.
#pragma once

#include "fluid/backward/backward.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "fluid/core/place.h"
#include "fluid/core/scope.h"
#include "fluid/core/tensor.h"
#include "fluid/data/data.h"
#include "fluid/executor/compiled_program.h"
#include "fluid/executor/executor.h"
#include "fluid/executor/parallel_executor.h"
#include "fluid/executor/places.h"
#include "fluid/executor/training/dataset_run.h"
#include "fluid/executor/training/trainer_threads.h"
#include "fluid/io/checkpoint.h"
#include "fluid/io/inference_model.h"
#include "fluid/kernels/op_library.h"
#include "fluid/layers/layers.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/optimizer/averages.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "fluid/program/program.h"
#include "fluid/program/variable.h"
#include "fluid/tables/lookup/shared_table.h"

namespace fluid = fleet::fluid;
