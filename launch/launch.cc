#include "launch/command_line.h"

int main(int argc, char** argv) {
  return fleet::launch::run_launcher(fleet::launch::Launcher::kCollective, argc, argv);
}
