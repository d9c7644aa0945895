// Writes the elements of an SVG file.
#pragma once

#include <sstream>
#include <string>

namespace fleet::tools {

class Svg {
 public:
  // `style` is a whole <style> element; class "page" paints the background.
  void begin(double width, double height, const std::string& title, const char* style);
  void text(double x, double y, const char* classes, const char* anchor, const std::string& words,
            const std::string& more = "");
  void line(const char* name, double x1, double y1, double x2, double y2);
  void path(const std::string& classes, const std::string& steps);
  std::string end();

 private:
  std::ostringstream out_;
};

}  // namespace fleet::tools
