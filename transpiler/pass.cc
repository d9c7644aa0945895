#include "transpiler/pass.h"

#include "base/strings.h"
#include "fluid/ops/append.h"

namespace fleet::transpiler {
namespace {

// Runs the check and puts the pass's name into what it throws.
template <class Check>
void named(std::string_view pass, const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    ErrorText text = error.text();
    text.where = str_cat("after pass '", pass, "', ", text.where);
    throw_error(error.code(), std::move(text));
  }
}

}  // namespace

void PassRunner::run(fluid::Program& program, std::span<const Pass> passes) const {
  for (const Pass& pass : passes) {
    pass.apply(program);
    named(pass.name, [&] {
      const bool last = &pass == &passes.back();
      if (verify_each || last) {
        fluid::verify(program, table);  // names, blocks and parents too
      } else {
        program.verify().throw_if_error();
      }
    });
  }
}

}  // namespace fleet::transpiler
