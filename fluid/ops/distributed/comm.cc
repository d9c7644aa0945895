#include "fluid/ops/distributed/comm.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"

namespace fleet::fluid {
namespace {

constexpr bool kOptional = true;
constexpr bool kRepeated = true;

template <class Attrs>
OpSchema schema_of(std::string type, std::vector<SlotSpec> inputs, std::vector<SlotSpec> outputs) {
  OpSchema schema;
  schema.type = type;
  schema.inputs = std::move(inputs);
  schema.outputs = std::move(outputs);
  schema.normalize = [type = std::move(type)](const AttributeMap& attrs) {
    return to_attributes(parse_attributes<Attrs>(type, attrs));
  };
  return schema;
}

template <class Attrs>
OpSchema in_place(std::string type) {
  OpSchema schema =
      schema_of<Attrs>(std::move(type), {{"X", false, kRepeated}}, {{"Out", false, kRepeated}});
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
  const SlotSpec x{"X", kOptional, kRepeated};
  const SlotSpec out{"Out", kOptional, kRepeated};
  table.add(schema_of<SendAttrs>("send", {x}, {out}));
  table.add(schema_of<SendBarrierAttrs>("send_barrier", {x}, {out}));
  table.add(schema_of<RecvAttrs>("recv", {x}, {{"Out", false, kRepeated}}));
  table.add(schema_of<FetchBarrierAttrs>("fetch_barrier", {x}, {out}));
  table.add(schema_of<ListenAndServAttrs>("listen_and_serv", {x}, {}));
  table.add(schema_of<ExchangeRowsAttrs>("exchange_rows", {x}, {{"Out", false, false}}));
  OpSchema split =
      schema_of<SplitByrefAttrs>("split_byref", {{"X", false, false}}, {{"Out", false, kRepeated}});
  split.infer = infer_split_byref;
  table.add(std::move(split));
}

void add_collective_ops(OpTable& table) {
  table.add(schema_of<GenNcclIdAttrs>("gen_nccl_id", {}, {{"NCCLID", false, false}}));
  table.add(schema_of<CGenNcclIdAttrs>("c_gen_nccl_id", {}, {{"Out", false, false}}));
  table.add(schema_of<CCommInitAttrs>("c_comm_init", {{"X", false, false}}, {}));
  table.add(schema_of<CCommInitAllAttrs>("c_comm_init_all", {}, {}));
  OpSchema average = in_place<NoAttrs>("c_local_sgd");
  average.inputs.push_back({"Loss", kOptional, false});
  average.inputs.push_back({"LearningRate", kOptional, false});
  table.add(std::move(average));
  table.add(in_place<CBroadcastAttrs>("c_broadcast"));
  table.add(in_place<CAllReduceAttrs>("c_allreduce_sum"));
  table.add(in_place<NoAttrs>("c_sync_calc_stream"));
  table.add(in_place<CSyncCommStreamAttrs>("c_sync_comm_stream"));
}

}  // namespace

void add_comm_ops(OpTable& table) {
  add_server_ops(table);
  add_collective_ops(table);
}

}  // namespace fleet::fluid
