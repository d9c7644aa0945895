#include "fluid/ops/control/print.h"

#include <cstdio>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

std::string lod_text(const LoD& lod) {
  std::string text;
  for (const auto& level : lod) text += (text.empty() ? "[" : ", [") + join(level, ", ") + "]";
  return "lod [" + text + "]";
}

// "loss: mean_0.tmp_0 float32 [1] {0.5}\n"
std::string line_about(const Tensor& tensor, const std::string& name, const PrintAttrs& attrs) {
  std::vector<std::string> parts;
  if (!attrs.message.empty()) parts.push_back(attrs.message);
  if (attrs.print_tensor_name) parts.push_back(name);
  if (attrs.print_tensor_type) parts.emplace_back(dtype_name(tensor.dtype()));
  if (attrs.print_tensor_shape) parts.push_back(tensor.shape().to_string());
  if (attrs.print_tensor_lod && !tensor.lod().empty()) parts.push_back(lod_text(tensor.lod()));
  const int64_t elements = attrs.summarize < 0 ? tensor.numel() : attrs.summarize;
  const std::string whole = tensor.to_string(elements);
  parts.push_back(whole.substr(whole.find('{')));
  return join(parts, " ") + "\n";
}

std::unique_ptr<Prepared> prepare_print(PrepareContext& context) {
  const auto attrs = context.attrs<PrintAttrs>();
  const bool prints =
      attrs.print_phase == "BOTH" || (attrs.print_phase == "FORWARD") == attrs.is_forward;
  const ValueSpec& spec = context.in("In");
  const int in = context.input("In");
  const int out = context.set_output("Out", spec.shape, spec.dtype);
  return make_prepared([=, name = context.op().input("In").front()](const KernelContext& c) {
    const Tensor& from = c.input(in);
    if (prints && (attrs.first_n < 0 || c.step() < static_cast<uint64_t>(attrs.first_n))) {
      const std::string line = line_about(from, name, attrs);
      // One call: the stream is locked while it writes.
      std::fwrite(line.data(), 1, line.size(), stdout);
      std::fflush(stdout);
    }
    if (out >= 0 && from.bytes() > 0) std::memcpy(c.output(out).raw(), from.raw(), from.bytes());
  });
}

}  // namespace

void register_print(KernelTable& table) {
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&table]<class T>(std::type_identity<T>) {
        table.add_last("print", DeviceKind::kCpu, dtype_of<T>(),
                       {.name = "print", .prepare = prepare_print});
      });
}

}  // namespace fleet::fluid::cpu
