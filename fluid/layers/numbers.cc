#include "fluid/layers/numbers.h"

#include <algorithm>

#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"

namespace fleet::fluid::layers {

template <class T>
T Given<T>::attribute(const LayerHelper& helper, const std::string& slot, SlotMap& inputs,
                      T otherwise) const {
  if (known()) return value_;
  helper.check_input(variable_, slot);
  inputs[slot] = {variable_.name()};
  return otherwise;
}

template class Given<int64_t>;
template class Given<double>;

std::vector<bool> Numbers::known() const {
  std::vector<bool> known;
  for (const Number& number : numbers_) known.push_back(number.known());
  return known;
}

template <class T>
std::vector<T> Numbers::attribute(const LayerHelper& helper, const std::string& whole,
                                  const std::string& list, SlotMap& inputs) const {
  if (whole_) {
    helper.check_input(*whole_, whole);
    inputs[whole] = {whole_->name()};
    return {};
  }
  const bool all_known = std::all_of(numbers_.begin(), numbers_.end(),
                                     [](const Number& number) { return number.known(); });
  std::vector<T> attribute;
  for (const Number& number : numbers_) {
    attribute.push_back(static_cast<T>(number.value_or(-1)));
    if (all_known) continue;
    const Variable variable =
        number.known() ? fill_constant({1}, DType::kInt32, static_cast<double>(number.value()),
                                       /*force_cpu=*/true)
                       : number.variable();
    helper.check_input(variable, list);
    inputs[list].push_back(variable.name());
  }
  return attribute;
}

template std::vector<int32_t> Numbers::attribute(const LayerHelper&, const std::string&,
                                                 const std::string&, SlotMap&) const;
template std::vector<int64_t> Numbers::attribute(const LayerHelper&, const std::string&,
                                                 const std::string&, SlotMap&) const;

}  // namespace fleet::fluid::layers
