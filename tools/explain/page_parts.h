// Parts of the HTML page that draw_page puts together.
#pragma once

#include <string>

#include "tools/explain/explanation.h"

namespace fleet::explain {

// A <style> element; `servers` can be chosen between.
std::string page_style(size_t servers);

// The processes and what travels between them, as an <svg> element.
std::string page_picture(const Explanation& explanation);

}  // namespace fleet::explain
