#include "fluid/ops/distributed/comm.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

OpSchema with_kind(CommKind kind, OpSchema schema) {
  schema.comm = kind;
  return run_by_runtime(std::move(schema));
}

OpSchema sends(OpSchema schema) {
  return with_kind(CommKind::kSends, std::move(schema));
}

OpSchema reduces(OpSchema schema) {
  return with_kind(CommKind::kReduces, std::move(schema));
}

template <class Attrs>
OpSchema in_place(std::string type) {
  OpSchema schema = reduces(make_schema<Attrs>(std::move(type), {many("X")}, {many("Out")}));
  schema.infer = [](InferContext& context) {
    context.require(context.input_count("X") == context.output_count("Out"), "Out",
                    str_cat("as many variables as X, ", context.input_count("X")),
                    str_cat(context.output_count("Out")));
    for (size_t i = 0; i < context.output_count("Out"); ++i) {
      const VarDesc& x = context.input("X", i);
      context.set_output("Out", x.shape, x.dtype, i, x.lod_level);
    }
  };
  return schema;
}

// Backward asks for no synchronisation: what follows needs the finished value.
GradientFunction summed_gradient(std::string type) {
  return [usual = usual_gradient({.inputs = {}, .type = std::move(type)})](const auto& context) {
    std::vector<Operator> ops = usual(context);
    for (Operator& op : ops) {
      op.inputs = {{"X", op.input("Out@GRAD")}};
      op.outputs = {{"Out", op.output("X@GRAD")}};
      op.attrs["use_calc_stream"] = true;
    }
    return ops;
  };
}

// The rows of X, times `nranks` or divided by it.
template <bool kTimes>
void infer_rows(InferContext& context) {
  const auto attrs = context.attrs<CRowsAttrs>();
  context.require(attrs.nranks > 0, "X", "attribute nranks of 1 or more", str_cat(attrs.nranks));
  const VarDesc& x = context.input("X");
  context.require(x.shape.rank() > 0, "X", "at least one dimension", x.shape.to_string());
  Shape shape = x.shape;
  const int64_t rows = shape[0];
  if (rows != Shape::kUnknown) {
    context.require(kTimes || rows % attrs.nranks == 0, "X",
                    str_cat("rows for ", attrs.nranks, " ranks, each as many"),
                    x.shape.to_string());
    shape.set(0, kTimes ? rows * attrs.nranks : rows / attrs.nranks);
  }
  context.set_output("Out", shape, x.dtype);
}

void infer_split_byref(InferContext& context) {
  const auto attrs = context.attrs<SplitByrefAttrs>();
  const VarDesc& x = context.input("X");
  context.require(attrs.sections.size() == context.output_count("Out"), "Out",
                  str_cat("one variable for each section, ", attrs.sections.size()),
                  str_cat(context.output_count("Out")));
  context.require(x.shape.rank() > 0, "X", "at least one dimension", x.shape.to_string());
  int64_t rows = 0;
  for (size_t i = 0; i < attrs.sections.size(); ++i) {
    Shape shape = x.shape;
    shape.set(0, attrs.sections[i]);
    rows += attrs.sections[i];
    context.set_output("Out", shape, x.dtype, i);
  }
  context.require(x.shape[0] == Shape::kUnknown || rows == x.shape[0], "X",
                  str_cat(rows, " rows, the sum of the sections"), x.shape.to_string());
}

void add_server_ops(OpTable& table) {
  const SlotSpec x = maybe_many("X");
  const SlotSpec out = maybe_many("Out");
  OpSchema send = sends(make_schema<SendAttrs>("send", {x}, {out}));
  send.once_a_shard = true;
  table.add(std::move(send));
  table.add(sends(make_schema<SendBarrierAttrs>("send_barrier", {x}, {out})));
  table.add(run_by_runtime(make_schema<RecvAttrs>("recv", {x}, {many("Out")})));
  table.add(run_by_runtime(make_schema<FetchBarrierAttrs>("fetch_barrier", {x}, {out})));
  table.add(run_by_runtime(make_schema<ListenAndServAttrs>("listen_and_serv", {x}, {})));
  table.add(run_by_runtime(make_schema<ExchangeRowsAttrs>("exchange_rows", {x}, {one("Out")})));
  OpSchema split =
      make_schema<SplitByrefAttrs>("split_byref", {one("X")}, {many("Out")}, infer_split_byref);
  split.makes_views = true;
  table.add(std::move(split));
}

void add_collective_ops(OpTable& table) {
  table.add(reduces(make_schema<GenNcclIdAttrs>("gen_nccl_id", {}, {one("NCCLID")})));
  table.add(reduces(make_schema<CGenNcclIdAttrs>("c_gen_nccl_id", {}, {one("Out")})));
  table.add(reduces(make_schema<CCommInitAttrs>("c_comm_init", {one("X")}, {})));
  table.add(reduces(make_schema<CCommInitAllAttrs>("c_comm_init_all", {}, {})));
  OpSchema average = in_place<NoAttrs>("c_local_sgd");
  average.inputs.push_back(maybe("Loss"));
  average.inputs.push_back(maybe("LearningRate"));
  table.add(std::move(average));
  OpSchema broadcast = in_place<CBroadcastAttrs>("c_broadcast");
  broadcast.takes_devices = true;
  table.add(std::move(broadcast));
  OpSchema sum = in_place<CAllReduceAttrs>("c_allreduce_sum");
  sum.takes_devices = true;
  sum.gradient = summed_gradient("c_allreduce_sum");
  table.add(std::move(sum));
  for (const char* type : {"c_allreduce_max", "c_allreduce_min", "c_allreduce_prod"}) {
    table.add(in_place<CAllReduceAttrs>(type));
  }
  table.add(reduces(make_schema<CRowsAttrs>("c_allgather", {one("X")}, {one("Out")},
                                            infer_rows<true>, summed_gradient("c_reducescatter"))));
  table.add(reduces(make_schema<CRowsAttrs>("c_reducescatter", {one("X")}, {one("Out")},
                                            infer_rows<false>, summed_gradient("c_allgather"))));
  for (OpSchema order : {in_place<NoAttrs>("c_sync_calc_stream"),
                         in_place<CSyncCommStreamAttrs>("c_sync_comm_stream")}) {
    order.only_orders = true;
    table.add(std::move(order));
  }
}

}  // namespace

void add_comm_ops(OpTable& table) {
  add_server_ops(table);
  add_collective_ops(table);
}

}  // namespace fleet::fluid
