#include "tests/testing/own_ops.h"

#include <cmath>

#include "fluid/layers/layers.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::testing {
namespace {

using fluid::DType;
using fluid::KernelContext;
using fluid::one;
using fluid::PrepareContext;
using fluid::Prepared;

struct CubedAttrs {
  float a = 1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(a));
  }
};

std::unique_ptr<Prepared> prepare_cubed(PrepareContext& context) {
  const float a = context.attrs<CubedAttrs>().a;
  const fluid::Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, DType::kFloat32);
  return fluid::make_prepared([=, count = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = c.in<float>(x)[i];
      c.out<float>(out)[i] = a * value * value * value;
    }
  });
}

std::unique_ptr<Prepared> prepare_cubed_grad(PrepareContext& context) {
  const float a = context.attrs<CubedAttrs>().a;
  const fluid::Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int incoming = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, DType::kFloat32);
  return fluid::make_prepared([=, count = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = c.in<float>(x)[i];
      c.out<float>(out)[i] = 3 * a * value * value * c.in<float>(incoming)[i];
    }
  });
}

std::unique_ptr<Prepared> prepare_sign_sgd(PrepareContext& context) {
  const fluid::Shape shape = context.in("Param").shape;
  const int param = context.input("Param");
  const int grad = context.input("Grad");
  const int rate = context.input("LearningRate");
  const int out = context.set_output("ParamOut", shape, DType::kFloat32);
  return fluid::make_prepared([=, count = shape.numel()](const KernelContext& c) {
    const float step = c.in<float>(rate)[0];
    double written = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float slope = c.in<float>(grad)[i];
      const float change = slope > 0 ? step : slope < 0 ? -step : 0;
      c.out<float>(out)[i] = c.in<float>(param)[i] - change;
      written += c.out<float>(out)[i];
    }
    c.add_written(written);
  });
}

std::unique_ptr<Prepared> prepare_unit_sgd(PrepareContext& context) {
  const fluid::Shape shape = context.in("Param").shape;
  const int param = context.input("Param");
  const int grad = context.input("Grad");
  const int rate = context.input("LearningRate");
  const int out = context.set_output("ParamOut", shape, DType::kFloat32);
  return fluid::make_prepared([=, count = shape.numel()](const KernelContext& c) {
    double squares = 1e-12;
    for (int64_t i = 0; i < count; ++i) squares += std::pow(double{c.in<float>(grad)[i]}, 2);
    const auto step = static_cast<float>(c.in<float>(rate)[0] / std::sqrt(squares));
    double written = 0;
    for (int64_t i = 0; i < count; ++i) {
      c.out<float>(out)[i] = c.in<float>(param)[i] - step * c.in<float>(grad)[i];
      written += c.out<float>(out)[i];
    }
    c.add_written(written);
  });
}

fluid::OpSchema update_schema(const char* type) {
  return fluid::make_schema<fluid::NoAttrs>(type, {one("Param"), one("Grad"), one("LearningRate")},
                                            {one("ParamOut")},
                                            fluid::infer_like({{"Param", "ParamOut"}}));
}

// "own_table_v2": the lookup of the library under another name.
void add_own_lookup(fluid::OpLibrary& library) {
  for (const std::string type : {"lookup_table_v2", "lookup_table_v2_grad"}) {
    fluid::OpSchema schema = library.ops().at(type);
    schema.type = "own" + type.substr(6);
    library.ops().add(schema);
    for (const auto& kernel :
         fluid::KernelTable::standard().find(type, fluid::DeviceKind::kCpu, DType::kFloat32)) {
      library.kernels().add_last(schema.type, fluid::DeviceKind::kCpu, DType::kFloat32, kernel);
    }
  }
}

}  // namespace

std::shared_ptr<fluid::OpLibrary> own_ops() {
  auto library = std::make_shared<fluid::OpLibrary>();
  library->ops().add(fluid::make_schema<CubedAttrs>("cubed", {one("X")}, {one("Out")},
                                                    fluid::infer_like({{"X", "Out"}}),
                                                    fluid::usual_gradient({.inputs = {"X"}})));
  library->ops().add(fluid::make_schema<CubedAttrs>("cubed_grad", {one("X"), one("Out@GRAD")},
                                                    {one("X@GRAD")},
                                                    fluid::infer_shape_like({{"X", "X@GRAD"}})));
  fluid::OpSchema sign_sgd = update_schema("sign_sgd");
  sign_sgd.updates_parts = true;
  library->ops().add(std::move(sign_sgd));
  library->ops().add(update_schema("unit_sgd"));
  add_own_lookup(*library);
  const auto add = [&](const char* op, auto prepare) {
    library->kernels().add_last(op, fluid::DeviceKind::kCpu, DType::kFloat32,
                                {.name = "own", .prepare = prepare});
  };
  add("cubed", prepare_cubed);
  add("cubed_grad", prepare_cubed_grad);
  add("sign_sgd", prepare_sign_sgd);
  add("unit_sgd", prepare_unit_sgd);
  return library;
}

fluid::Variable cubed(const fluid::Variable& x, float a) {
  return fluid::LayerHelper("cubed").append_unary("cubed", x,
                                                  fluid::to_attributes(CubedAttrs{.a = a}));
}

fluid::Variable own_lookup(const fluid::Variable& ids, const fluid::Shape& size) {
  const fluid::Variable rows = fluid::embedding(ids, size, {.is_sparse = true});
  fluid::Block& block = rows.block();
  block.edit_op(block.op_count() - 1).type = "own_table_v2";
  return rows;
}

}  // namespace fleet::testing
