// All layers.
#pragma once

#include "fluid/layers/control_flow.h"
#include "fluid/layers/conv.h"
#include "fluid/layers/embedding.h"
#include "fluid/layers/learning_rate_scheduler.h"
#include "fluid/layers/loss.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/nn.h"
#include "fluid/layers/norm.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/sampled.h"
#include "fluid/layers/sequence.h"
#include "fluid/layers/sparse_embedding.h"
#include "fluid/layers/tensor.h"
