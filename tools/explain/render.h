// Explanations for people and programs.
#pragma once

#include <cstddef>
#include <string>

#include "tools/explain/explanation.h"

namespace fleet::explain {

struct TextOptions {
  int columns = 100;
  bool unicode = true;
  bool colour = false;  // ANSI colours
  // Rows of a program, and of the placement table; what is left out is counted.
  size_t most_rows = 200;
};
std::string draw_text(const Explanation& explanation, const TextOptions& options);

// Everything but the programs' own texts' variables; stable, with sorted keys.
std::string to_json(const Explanation& explanation);

// The trainer's and the shown servers' programs in one graph, with what is sent between them.
std::string draw_graph(const Explanation& explanation);

struct PageOptions {
  size_t most_rows = 2000;
  // Bytes of an op's whole text: that of a server's sums and of listen_and_serv names every shard.
  size_t most_text = 1000;
};
// One HTML file that stands alone: no other file, no network. It needs no script to be read; the
// reader's light or dark scheme decides its colours.
std::string draw_page(const Explanation& explanation, const PageOptions& options = {});

}  // namespace fleet::explain
