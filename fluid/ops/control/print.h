// Op print: In -> Out, the same values. Running it writes one line about them to standard output,
// in one piece, whatever other threads write.
//
// Its gradient is a print of Out@GRAD with is_forward false, which writes in phase BACKWARD.
#pragma once

#include <string>

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct PrintAttrs {
  int32_t first_n = -1;  // only in so many steps of the program; negative: in all
  std::string message;
  int32_t summarize = -1;  // elements at most; negative: all
  bool print_tensor_name = true;
  bool print_tensor_type = true;
  bool print_tensor_shape = true;
  bool print_tensor_lod = true;
  std::string print_phase = "BOTH";  // FORWARD, BACKWARD or BOTH
  bool is_forward = true;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(first_n), CEREAL_NVP(message), CEREAL_NVP(summarize),
       CEREAL_NVP(print_tensor_name), CEREAL_NVP(print_tensor_type), CEREAL_NVP(print_tensor_shape),
       CEREAL_NVP(print_tensor_lod), CEREAL_NVP(print_phase), CEREAL_NVP(is_forward));
  }
};

void add_print_op(OpTable& table);

}  // namespace fleet::fluid
