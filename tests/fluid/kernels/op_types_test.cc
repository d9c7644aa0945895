// Every element type that the kernel list of an op names: it computes what double precision does
// with the same values, forward and backward.
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/philox.h"
#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/ops/append.h"
#include "tests/fluid/kernels/net_cases.h"
#include "tests/fluid/kernels/one_op.h"
#include "tests/fluid/kernels/typed_net.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using TypedOps = std::set<std::pair<std::string, DType>>;

TypedOps registered() {
  TypedOps pairs;
  for (const auto& row : KernelTable::standard().rows()) {
    if (row.device == DeviceKind::kCpu) pairs.emplace(row.op, row.dtype);
  }
  return pairs;
}

// The type under which the case's kernel is listed: fixed by an input, or the one under test.
bool type_is_free(const OpCase& op_case) {
  if (!op_case.typed_attribute.empty()) return true;
  for (const char* slot : {"X", "Input", "Logits"}) {
    for (const Input& input : op_case.inputs) {
      if (input.slot == slot) return is_floating(input.dtype);
    }
  }
  return true;
}

std::vector<DType> types_of(const OpCase& op_case) {
  std::vector<DType> types;
  for (const auto& [op, dtype] : registered()) {
    if (op != op_case.type || (op_case.floats_only && !is_floating(dtype))) continue;
    if (dtype == DType::kBool && !op_case.takes_truths) continue;
    if (type_is_free(op_case)) types.push_back(dtype);
  }
  return types;
}

// The same values in double precision; inputs whose type is fixed stay as they are.
void copy_values(const Feed& from, Feed& to) {
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const Tensor& given = from[i].second;
    Tensor& taken = to[i].second;
    ASSERT_EQ(given.shape(), taken.shape()) << from[i].first;
    for (int64_t k = 0; k < given.numel(); ++k) set_element(taken, k, element(given, k));
  }
}

// Halves are rounded once.
double tolerance_of(DType dtype) {
  if (dtype == DType::kFloat16) return 1e-3;
  return dtype == DType::kBFloat16 ? 8e-3 : 1e-5;
}

void expect_same(const Tensor& got, const Tensor& exact, const std::string& name) {
  ASSERT_EQ(got.shape(), exact.shape()) << name;
  double scale = 1;
  for (int64_t i = 0; i < exact.numel(); ++i) scale = std::max(scale, std::abs(element(exact, i)));
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double wanted = element(exact, i);
    if (is_floating(got.dtype())) {
      ASSERT_NEAR(element(got, i), wanted, tolerance_of(got.dtype()) * scale)
          << name << " element " << i;
    } else if (got.dtype() == DType::kBool) {
      ASSERT_EQ(element(got, i), wanted != 0 ? 1 : 0) << name << " element " << i;
    } else {
      ASSERT_EQ(element(got, i), std::trunc(wanted)) << name << " element " << i;
    }
  }
}

class OpTypes : public testing::TestWithParam<OpCase> {};

TEST_P(OpTypes, ComputeWhatDoublesDo) {
  for (const DType dtype : types_of(GetParam())) {
    SCOPED_TRACE(dtype_name(dtype));
    OneOp typed(GetParam(), dtype);
    OneOp exact(GetParam(), DType::kFloat64);
    copy_values(typed.feed(), exact.feed());
    const auto got = typed.run();
    const auto wanted = exact.run();
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], wanted[i], str_cat("output ", i));
  }
}

TEST_P(OpTypes, HaveTheGradientsOfDoubles) {
  if (!OpTable::standard().at(GetParam().type).gradient) return;  // nothing to compute
  for (const DType dtype : types_of(GetParam())) {
    SCOPED_TRACE(dtype_name(dtype));
    OneOp typed(GetParam(), dtype);
    OneOp exact(GetParam(), DType::kFloat64);
    const auto names = typed.append_gradients();
    if (names.empty()) continue;
    ASSERT_EQ(exact.append_gradients(), names);
    copy_values(typed.feed(), exact.feed());
    Executor executor;
    for (const std::string& name : names) {
      expect_same(typed.fetch(executor, name), exact.fetch(executor, name), name);
    }
  }
}

std::string name_of(const testing::TestParamInfo<OpCase>& info) {
  return str_cat(info.param.type, "_", info.index);
}

INSTANTIATE_TEST_SUITE_P(Table, OpTypes, testing::ValuesIn(op_cases()), name_of);

// Values that tell elements apart as far as the type can.
Tensor counted(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    set_element(tensor, i, static_cast<double>(dtype == DType::kBool ? i % 2 : 1 + 3 * i));
  }
  return tensor;
}

std::vector<double> elements(const Tensor& tensor) {
  std::vector<double> all;
  for (int64_t i = 0; i < tensor.numel(); ++i) all.push_back(element(tensor, i));
  return all;
}

const std::vector<DType> kWhole = {DType::kInt32, DType::kInt64};
const std::vector<DType> kOthers = {DType::kBool,  DType::kUInt8, DType::kInt8,
                                    DType::kInt16, DType::kInt32, DType::kInt64};

// Calls `test` for each type, with programs of its own.
void for_each_type(const std::vector<DType>& types,
                   const std::function<void(DType dtype, Program& main, Program& startup)>& test) {
  for (const DType dtype : types) {
    SCOPED_TRACE(dtype_name(dtype));
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    test(dtype, main, startup);
  }
}

TEST(OtherTypes, GoThroughArraysAndBack) {
  std::vector<DType> types = kOthers;
  types.insert(types.end(), {DType::kFloat32, DType::kFloat64});
  for_each_type(types, [](DType dtype, Program& main, Program&) {
    const auto input = [dtype](const char* name) {
      const Variable var = layers::data(name, {2, 3}, dtype, {.append_batch_size = false});
      var.set_stop_gradient(false);
      return var;
    };
    const Variable x = input("x");
    const Variable y = input("y");
    const Variable zero = layers::fill_constant({1}, DType::kInt64, 0);
    const Variable read = layers::array_read(layers::array_write(x, zero), zero);
    const Variable array = layers::array_write(y, zero);
    const Variable length = layers::array_length(array);
    const Variable joined = layers::tensor_array_to_tensor(array, 0).out;
    append_backward(layers::reduce_sum(layers::cast(read, DType::kFloat64)) +
                    layers::reduce_sum(layers::cast(joined, DType::kFloat64)));
    const Tensor given = counted(dtype, {2, 3});
    Executor executor;
    const auto got = executor.run(main, {{x.name(), given}, {y.name(), given}},
                                  {read, joined, length, x.name() + "@GRAD", y.name() + "@GRAD"});
    EXPECT_EQ(elements(got[0]), elements(given));
    EXPECT_EQ(elements(got[1]), elements(given));
    EXPECT_EQ(element(got[2], 0), 1);
    for (const size_t i : {3, 4}) {
      EXPECT_EQ(got[i].dtype(), dtype);
      EXPECT_EQ(elements(got[i]), std::vector<double>(6, 1.0));
    }
  });
}

TEST(OtherTypes, ArePrintedAndChosen) {
  for_each_type(kOthers, [](DType dtype, Program& main, Program&) {
    const Variable x = layers::data("x", {2, 3}, dtype, {.append_batch_size = false});
    const Variable truth = layers::fill_constant({1}, DType::kBool, 1);
    const Variable other = layers::zeros_like(x);
    const Variable chosen = layers::cond(
        truth, [&] { return std::vector{layers::assign(x)}; },
        [&] { return std::vector{layers::assign(other)}; })[0];
    const Variable printed = layers::Print(chosen);
    const Variable first = layers::fill_constant({1}, DType::kInt32, 0);
    for (const char* name : {"taken", "left"}) {
      VarDesc desc;
      desc.name = name;
      main.global_block().add_var(desc);
    }
    append_op(main.global_block(), {.type = "select_output",
                                    .inputs = {{"X", {"x"}}, {"Mask", {first.name()}}},
                                    .outputs = {{"Out", {"taken", "left"}}},
                                    .attrs = {}});
    const Tensor given = counted(dtype, {2, 3});
    Executor executor;
    const auto got = executor.run(main, {{"x", given}}, {printed, "taken"});
    EXPECT_EQ(elements(got[0]), elements(given));
    EXPECT_EQ(elements(got[1]), elements(given));
  });
}

TEST(OtherTypes, AreInitialValues) {
  const std::vector<DType> types = {DType::kBool, DType::kInt32, DType::kInt64, DType::kFloat32};
  for_each_type(types, [](DType dtype, Program&, Program& startup) {
    const Tensor given = counted(dtype, {2, 3});
    const Variable made = layers::create_parameter(
        Shape{2, 3}, dtype, {.attr = {.initializer = initializer::Assign{given}}});
    Executor executor;
    executor.run(startup);
    EXPECT_EQ(elements(executor.scope().tensor(made.name())), elements(given));
  });
}

TEST(OtherTypes, FormSequences) {
  for_each_type(kWhole, [](DType dtype, Program& main, Program&) {
    const Variable x = layers::data("x", {1}, dtype, {.lod_level = 1});
    const Variable zero = layers::fill_constant({1}, dtype, 0);
    const layers::Padded padded = layers::sequence_pad(x, zero);
    Tensor given = counted(dtype, {3, 1});  // 1, 4, 7
    given.set_lod({{0, 2, 3}});
    Executor executor;
    const auto got = executor.run(
        main, {{x.name(), given}},
        {padded.out, layers::sequence_unpad(padded.out, padded.length), layers::sequence_reverse(x),
         layers::sequence_concat({x, x}), layers::sequence_expand(x, x)});
    EXPECT_EQ(elements(got[0]), (std::vector<double>{1, 4, 7, 0}));
    EXPECT_EQ(elements(got[1]), (std::vector<double>{1, 4, 7}));
    EXPECT_EQ(elements(got[2]), (std::vector<double>{4, 1, 7}));
    EXPECT_EQ(elements(got[3]), (std::vector<double>{1, 4, 1, 4, 7, 7}));
    EXPECT_EQ(elements(got[4]), (std::vector<double>{1, 4, 1, 4, 7}));
  });
}

// The kernels of the library, with a note of each that took an op.
KernelTable noting(TypedOps& taken) {
  KernelTable table;
  for (const auto& row : KernelTable::standard().rows()) {
    for (const Kernel& kernel : row.kernels) {
      Kernel noted = kernel;
      noted.prepare = [&taken, pair = std::pair(row.op, row.dtype),
                       prepare = kernel.prepare](PrepareContext& context) {
        auto prepared = prepare(context);
        if (prepared != nullptr) taken.insert(pair);
        return prepared;
      };
      table.add_last(row.op, row.device, row.dtype, std::move(noted));
    }
  }
  return table;
}

class NetTypes : public testing::TestWithParam<NetCase> {};

TEST_P(NetTypes, ComputeWhatDoublesDo) {
  TypedNet floats(GetParam(), DType::kFloat32, KernelTable::standard());
  TypedNet doubles(GetParam(), DType::kFloat64, KernelTable::standard());
  doubles.begin_as(floats);
  for (int step = 0; step < 3; ++step) {
    const auto got = floats.run(step);
    const auto exact = doubles.run(step);
    ASSERT_EQ(got.size(), exact.size());
    for (size_t i = 0; i < got.size(); ++i)
      expect_near(got[i], exact[i], 1e-4, str_cat("value ", i));
  }
  const auto exact = doubles.kept();
  for (const auto& [name, tensor] : floats.kept()) expect_near(tensor, exact.at(name), 1e-4, name);
}

// A step, or an error that says what it lacks.
TEST_P(NetTypes, TakeOrRefuseBatchesOfNoneAndOfOne) {
  struct Batch {
    int64_t rows;
    std::vector<int64_t> offsets;
  };
  for (const Batch& batch : std::vector<Batch>{
           {0, {0}}, {0, {0, 0}}, {1, {0, 1}}, {1, {0, 0, 1, 1}}, {2, {0, 2, 2}}, {3, {0, 0, 3}}}) {
    SCOPED_TRACE(str_cat(batch.rows, " rows, offsets ", join(batch.offsets, " ")));
    TypedNet net(GetParam(), DType::kFloat32, KernelTable::standard());
    // What came before must not matter.
    net.run(0);
    try {
      net.run(1, batch.rows, batch.offsets);
    } catch (const Error& error) {
      EXPECT_FALSE(error.text().what.empty());
    }
    net.run(2);
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, NetTypes, testing::ValuesIn(net_cases()),
                         [](const auto& net) { return net.param.name; });

// What nets of each floating type ran.
TypedOps tried_by_nets() {
  TypedOps taken;
  const KernelTable kernels = noting(taken);
  for (const NetCase& net : net_cases()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      TypedNet(net, dtype, kernels).run(0);
    }
  }
  return taken;
}

// Types of ops that have tests of their own, above or where it is said.
TypedOps tried_elsewhere() {
  TypedOps pairs;
  const auto add = [&pairs](std::initializer_list<const char*> ops,
                            const std::vector<DType>& types) {
    for (const char* op : ops) {
      for (const DType dtype : types) pairs.emplace(op, dtype);
    }
  };
  // Above.
  add({"assign_value"}, {DType::kBool, DType::kInt32, DType::kInt64, DType::kFloat32});
  add({"sequence_expand", "sequence_concat", "sequence_reverse", "sequence_pad", "sequence_unpad"},
      kWhole);
  add({"write_to_array", "write_to_array_grad", "read_from_array", "read_from_array_grad",
       "lod_array_length", "tensor_array_to_tensor", "tensor_array_to_tensor_grad", "print",
       "select_input", "select_output"},
      kOthers);
  add({"read_from_array", "read_from_array_grad", "lod_array_length", "tensor_array_to_tensor",
       "tensor_array_to_tensor_grad"},
      {DType::kFloat32, DType::kFloat64});
  // dense_ops_test.cc, tests/fluid/layers/sequence_test.cc, slices_test.cc, averages_test.cc.
  add({"range", "sequence_mask"}, kWhole);
  add({"where_index", "split_ids", "average_accumulates"}, {DType::kInt64});
  // tests/fluid/layers/embedding_test.cc, sparse_embedding_test.cc beside it,
  // tests/fluid/optimizer/growing_optimizers_test.cc, growing_tables_cluster_test.cc.
  add({"fused_embedding_seq_pool", "fused_embedding_seq_pool_grad"},
      {DType::kFloat32, DType::kFloat64});
  add({"make_growing_table", "lookup_growing_table", "lookup_growing_table_grad",
       "update_growing_table", "split_growing_rows", "add_growing_table_shows"},
      {DType::kFloat32});
  add({"add_growing_table_shows"}, {DType::kInt64});
  // tests/strategies/collective/norms_over_shards_test.cc.
  add({"sync_batch_norm", "sync_batch_norm_sums", "sync_batch_norm_grad",
       "sync_batch_norm_grad_sums"},
      {DType::kFloat32, DType::kFloat64});
  // tests/strategies/collective/dgc_training_test.cc.
  add({"dgc", "dgc_momentum"}, {DType::kFloat32});
  return pairs;
}

TEST(OpTypes, OfEveryKernelAreTried) {
  TypedOps tried = tried_elsewhere();
  tried.merge(tried_by_nets());
  for (const OpCase& op_case : op_cases()) {
    for (const DType dtype : types_of(op_case)) {
      tried.emplace(op_case.type, dtype);
      tried.emplace(op_case.type + "_grad", dtype);
      if (op_case.type == "cross_entropy2") tried.emplace("cross_entropy_grad2", dtype);
    }
    for (const Input& input : op_case.inputs) {
      if (input.slot == "X" && !is_floating(input.dtype)) tried.emplace(op_case.type, input.dtype);
    }
  }
  for (const auto& [op, dtype] : registered()) {
    EXPECT_TRUE(tried.contains({op, dtype})) << op << " of " << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace fleet::fluid
