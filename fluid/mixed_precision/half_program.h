// Rewriting a forward part so that some of its ops compute in 16-bit floats.
#pragma once

#include "fluid/core/dtype.h"
#include "fluid/mixed_precision/precision_table.h"

namespace fleet::fluid::mixed_precision {

// Has the ops of the main block that belong to the forward part compute in `half` (float16 or
// bfloat16) or float32, as the table says; what an op needs in the other type is made by `cast`, in
// front of the first op that needs it: "x.cast_fp16" (or _bf16) and "x.cast_fp32". Persistable
// variables stay float32. So do, whatever the table says:
// - Scale, Bias and the statistics of batch_norm;
// - what ops with an attribute `dtype` make, and what a `cast` of the user's makes;
// - variables of the main block that the blocks of conditions and loops name, and all inside.
// Gradients flow through the casts, where they flow into what is cast.
//
// Throws ProgramError for a program that has a backward part already, and for an op of the lists
// that takes no such type; the program is what it was then.
void compute_in_halves(Program& program, const PrecisionTable& table, DType half);

}  // namespace fleet::fluid::mixed_precision
