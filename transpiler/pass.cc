#include "transpiler/pass.h"

#include "base/strings.h"
#include "fluid/ops/append.h"

namespace fleet::transpiler {
namespace {

void verify_after(const Pass& pass, const fluid::Program& program, const fluid::OpTable& table) {
  try {
    fluid::verify(program, table);
  } catch (const Error& error) {
    ErrorText text = error.text();
    text.where = str_cat("after pass '", pass.name, "', ", text.where);
    throw_error(error.code(), std::move(text));
  }
}

}  // namespace

void run_passes(fluid::Program& program, std::span<const Pass> passes,
                const fluid::OpTable& table) {
  for (const Pass& pass : passes) {
    pass.apply(program);
    verify_after(pass, program, table);
  }
}

}  // namespace fleet::transpiler
