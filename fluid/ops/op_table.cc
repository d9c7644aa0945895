#include "fluid/ops/activation.h"
#include "fluid/ops/comm.h"
#include "fluid/ops/elementwise.h"
#include "fluid/ops/fill.h"
#include "fluid/ops/loss.h"
#include "fluid/ops/metric.h"
#include "fluid/ops/mul.h"
#include "fluid/ops/op_schema.h"
#include "fluid/ops/optimize.h"
#include "fluid/ops/reduce.h"
#include "fluid/ops/scale.h"
#include "fluid/ops/server_ops.h"
#include "fluid/ops/shape_ops.h"

namespace fleet::fluid {

const OpTable& OpTable::standard() {
  static const OpTable table = [] {
    OpTable all;
    add_activation_ops(all);
    add_comm_ops(all);
    add_elementwise_ops(all);
    add_fill_ops(all);
    add_loss_ops(all);
    add_metric_ops(all);
    add_mul_ops(all);
    add_optimize_ops(all);
    add_reduce_ops(all);
    add_scale_ops(all);
    add_server_ops(all);
    add_shape_ops(all);
    return all;
  }();
  return table;
}

}  // namespace fleet::fluid
