// Prints a strategy's options with where each value came from.
#pragma once

#include <string>

#include "base/strings.h"

namespace fleet::strategies {

class OptionsText {
 public:
  // A value that differs from the default was set by the user's code.
  template <class T>
  OptionsText& add(const char* name, const T& value, const T& default_value) {
    text_ += str_cat("  ", name, " = ", value, "  (", value == default_value ? "default" : "code",
                     ")\n");
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace fleet::strategies
