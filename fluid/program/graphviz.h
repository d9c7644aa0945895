// Programs as graphs, in the language of Graphviz: `dot -Tsvg program.dot`.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::fluid {

// Ops are boxes in the colour of their role, variables that outlive a step and data that is fed
// are ellipses, and what one op makes for another is an edge with its name and shape.
std::string to_graphviz(const Program& program);

// One graph of several programs, each in a frame of its own.
class GraphvizWriter {
 public:
  // What a picture says of an op besides its type.
  struct OpNote {
    std::string line;       // a second line in its box
    bool emphasis = false;  // a thick border
  };
  // Of the op at a position of a block; may be empty.
  using Annotate = std::function<OpNote(int32_t block, size_t position)>;

  // Programs are numbered in the order in which they are added.
  size_t add_program(const Program& program, const std::string& title,
                     const Annotate& annotate = {});
  // From an op of one program to an op of another.
  void add_edge(const std::string& from, const std::string& to, const std::string& label);
  // The name of an op's node.
  static std::string node(size_t program, int32_t block, size_t position);

  std::string text() const;

 private:
  size_t programs_ = 0;
  std::string body_;
};

}  // namespace fleet::fluid
