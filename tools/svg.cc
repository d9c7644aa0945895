#include "tools/svg.h"

#include <utility>

#include "base/display.h"

namespace fleet::tools {

void Svg::begin(double width, double height, const std::string& title, const char* style) {
  out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << " " << height
       << "\" width=\"" << width << "\" height=\"" << height
       << "\" role=\"img\" aria-labelledby=\"title\">\n"
       << "<title id=\"title\">" << escape_markup(title) << "</title>\n"
       << style << "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n";
}

void Svg::text(double x, double y, const char* classes, const char* anchor,
               const std::string& words, const std::string& more) {
  out_ << "<text class=\"" << classes << "\" x=\"" << fixed(x, 1) << "\" y=\"" << fixed(y, 1)
       << "\" text-anchor=\"" << anchor << "\"" << more << ">" << escape_markup(words)
       << "</text>\n";
}

void Svg::line(const char* name, double x1, double y1, double x2, double y2) {
  out_ << "<line class=\"" << name << "\" x1=\"" << fixed(x1, 1) << "\" y1=\"" << fixed(y1, 1)
       << "\" x2=\"" << fixed(x2, 1) << "\" y2=\"" << fixed(y2, 1) << "\"/>\n";
}

void Svg::path(const std::string& classes, const std::string& steps) {
  out_ << "<path class=\"" << classes << "\" d=\"" << steps << "\"/>\n";
}

std::string Svg::end() {
  out_ << "</svg>\n";
  return std::move(out_).str();
}

}  // namespace fleet::tools
