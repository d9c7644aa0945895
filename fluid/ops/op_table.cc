#include "fluid/ops/control/control_flow.h"
#include "fluid/ops/control/print.h"
#include "fluid/ops/control/tensor_array.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/server_ops.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/ops/loss/loss.h"
#include "fluid/ops/loss/metric.h"
#include "fluid/ops/loss/regression_loss.h"
#include "fluid/ops/math/activation.h"
#include "fluid/ops/math/compare.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/math/mul.h"
#include "fluid/ops/math/reduce.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/math/similarity.h"
#include "fluid/ops/nn/conv.h"
#include "fluid/ops/nn/dropout.h"
#include "fluid/ops/nn/embedding.h"
#include "fluid/ops/nn/growing_table.h"
#include "fluid/ops/nn/norm.h"
#include "fluid/ops/nn/sampled.h"
#include "fluid/ops/nn/selected_rows.h"
#include "fluid/ops/nn/sync_batch_norm.h"
#include "fluid/ops/op_schema.h"
#include "fluid/ops/optimize/average.h"
#include "fluid/ops/optimize/dgc.h"
#include "fluid/ops/optimize/optimize.h"
#include "fluid/ops/sequence/rnn.h"
#include "fluid/ops/sequence/sequence.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/index_ops.h"
#include "fluid/ops/shape/initialize.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid {

const OpTable& OpTable::standard() {
  static const OpTable table = [] {
    OpTable all;
    add_activation_ops(all);
    add_average_ops(all);
    add_comm_ops(all);
    add_compare_ops(all);
    add_control_flow_ops(all);
    add_conv_ops(all);
    add_dropout_ops(all);
    add_embedding_ops(all);
    add_growing_table_ops(all);
    add_elementwise_ops(all);
    add_fill_ops(all);
    add_index_ops(all);
    add_initialize_ops(all);
    add_loss_ops(all);
    add_metric_ops(all);
    add_mul_ops(all);
    add_norm_ops(all);
    add_sync_batch_norm_ops(all);
    add_rnn_ops(all);
    add_sampled_ops(all);
    add_selected_rows_ops(all);
    add_sequence_ops(all);
    add_optimize_ops(all);
    add_dgc_ops(all);
    add_print_op(all);
    add_reduce_ops(all);
    add_regression_loss_ops(all);
    add_scale_ops(all);
    add_server_ops(all);
    add_shape_ops(all);
    add_table_ops(all);
    add_tensor_array_ops(all);
    add_similarity_ops(all);
    return all;
  }();
  return table;
}

}  // namespace fleet::fluid
