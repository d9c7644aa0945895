// What pages must keep: what they name is there.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/tree/tree_rules.h"

namespace fleet::tree {

// The anchors of a page's headings, as renderers make them: "what-travels-in-a-step".
std::set<std::string> anchors(const std::string& page);

// Links to pages, pictures and headings of the project that are not there. Other sites are not
// asked.
Breaches check_links(const SourceFile& page, const std::vector<SourceFile>& pages,
                     const std::set<std::string>& paths);

// Paths in backticks below a top-level folder that are not there.
Breaches check_paths(const SourceFile& page, const std::set<std::string>& paths);

// Qualified names of Fleet's namespaces of which no header has the last part.
Breaches check_names(const SourceFile& page, const std::set<std::string>& identifiers);

// All words of headers that could be names.
std::set<std::string> identifiers_of_headers(const std::vector<SourceFile>& tree);

}  // namespace fleet::tree
