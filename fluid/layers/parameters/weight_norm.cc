#include "fluid/layers/parameters/weight_norm.h"

#include <numeric>
#include <utility>

#include "base/strings.h"

namespace fleet::fluid {
namespace {

// Ops that compute the norm of v in one of the programs, as Paddle writes them.
class Writer {
 public:
  Writer(Block& block, const LayerHelper& helper, DType dtype)
      : block_(block), prefix_(helper.name() + ".weight_norm_"), dtype_(dtype) {}

  std::string append(const std::string& type, SlotMap inputs, AttributeMap attrs,
                     const std::string& out = {}) const {
    std::string name = out;
    if (name.empty()) {
      VarDesc desc;
      desc.name = name = unique_name::generate(prefix_ + type);
      desc.dtype = dtype_;
      block_.add_var(std::move(desc));
    }
    append_op(block_, {.type = type,
                       .inputs = std::move(inputs),
                       .outputs = {{"Out", {name}}},
                       .attrs = std::move(attrs)});
    return name;
  }
  std::string reshape(const std::string& x, const std::vector<int64_t>& shape,
                      const std::string& out = {}) const {
    return append("reshape", {{"X", {x}}}, {{"shape", shape}}, out);
  }
  std::string transpose(const std::string& x, const std::vector<int64_t>& axis,
                        const std::string& out = {}) const {
    return append("transpose", {{"X", {x}}}, {{"axis", axis}}, out);
  }

  // Over dimension `along`, or over everything.
  std::string norm(const std::string& x, std::optional<int64_t> along) const {
    const std::string absolute = append("abs", {{"X", {x}}}, {});
    const std::string squares = append("pow", {{"X", {absolute}}}, {{"factor", 2.0}});
    AttributeMap attrs = {{"reduce_all", !along.has_value()}, {"keep_dim", along.has_value()}};
    if (along) attrs["dim"] = std::vector<int64_t>{*along};
    const std::string sum = append("reduce_sum", {{"X", {squares}}}, std::move(attrs));
    return append("pow", {{"X", {sum}}}, {{"factor", 0.5}});
  }

  // Of v, over all dimensions but `dim`: with v's rank, and 1 in those.
  std::string norm_except(const std::string& v, const Shape& shape, std::optional<int> dim,
                          const std::string& out = {}) const {
    std::vector<int64_t> kept(static_cast<size_t>(shape.rank()), 1);
    if (!dim) return reshape(norm(v, std::nullopt), kept, out);
    kept[static_cast<size_t>(*dim)] = shape[*dim];
    if (*dim == 0) return reshape(norm(reshape(v, {shape[0], -1}), 1), kept, out);
    if (*dim == shape.rank() - 1) return reshape(norm(reshape(v, {-1, shape[*dim]}), 0), kept, out);
    std::vector<int64_t> order(static_cast<size_t>(shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    std::swap(order.front(), order[static_cast<size_t>(*dim)]);
    const std::string rows = reshape(transpose(v, order), {shape[*dim], -1});
    return reshape(norm(rows, 1), kept, out);
  }

 private:
  Block& block_;
  std::string prefix_;
  DType dtype_;
};

}  // namespace

Variable normalized_weight(const LayerHelper& helper, const ParamAttr& attr,
                           const std::string& name, const Shape& shape, DType dtype) {
  std::optional<int> dim = attr.weight_norm->dim;
  if (dim && *dim < 0) *dim += shape.rank();
  if (dim && (*dim < 0 || *dim >= shape.rank())) {
    helper.fail(str_cat("weight_norm of parameter '", name, "' names no dimension"),
                str_cat("[-", shape.rank(), ", ", shape.rank(), ") for ", shape),
                str_cat(*attr.weight_norm->dim), "name the dimension of the outputs, or none");
  }
  ParamAttr part = attr;
  part.weight_norm = {};
  part.do_model_average = attr.do_model_average.value_or(false);
  part.name = name + "_v";
  const Variable v = helper.parameter(part, shape, dtype, false);
  Shape one_each;
  for (int d = 0; d < shape.rank(); ++d) one_each.push_back(dim == d ? shape[d] : 1);
  part.name = name + "_g";
  part.initializer = initializer::Constant{};
  const bool shared = helper.startup().global_block().find_var(part.name) != nullptr;
  const Variable g = helper.parameter(part, one_each, dtype, false);
  if (!shared) {
    const Writer startup(helper.startup().global_block(), helper, dtype);
    startup.norm_except(v.name(), shape, dim, g.name());
  }
  const Writer main(helper.block(), helper, dtype);
  const std::string norm = main.norm_except(v.name(), shape, dim);
  std::string scale = main.append("elementwise_div", {{"X", {g.name()}}, {"Y", {norm}}}, {});
  if (dim) scale = main.reshape(scale, {shape[*dim]});
  const std::string w = main.append("elementwise_mul", {{"X", {v.name()}}, {"Y", {scale}}},
                                    {{"axis", static_cast<int64_t>(dim ? *dim : -1)}});
  return Variable(helper.block(), helper.block().var(w));
}

}  // namespace fleet::fluid
