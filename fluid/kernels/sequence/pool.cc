#include "fluid/kernels/sequence/pool.h"

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/sequence/sequences.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid {

SequencePool sequence_pool_of(const PrepareContext& context) {
  const std::string type = context.attrs<SequencePoolAttrs>().pooltype;
  if (type == "SUM") return SequencePool::kSum;
  if (type == "AVERAGE") return SequencePool::kAverage;
  if (type == "SQRT") return SequencePool::kSqrt;
  if (type == "MAX") return SequencePool::kMax;
  if (type == "FIRST") return SequencePool::kFirst;
  context.require(type == "LAST", "X", "a known pooltype", type);
  return SequencePool::kLast;
}

void require_pooled(const SequenceInput& x, const Tensor& grad, int64_t count) {
  if (grad.numel() == count * x.width) return;
  throw_error(ErrorCode::kShapeMismatch, {.what = "a gradient does not fit the sequences",
                                          .where = x.where,
                                          .expected = str_cat(count, " rows of ", x.width),
                                          .got = grad.shape().to_string(),
                                          .fix = "check what was done to the pooled rows"});
}

}  // namespace fleet::fluid
