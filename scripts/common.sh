# shellcheck shell=bash
# Shared by the scripts: sourced, never run. Leaves the shell in the project's root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Clones in different folders share the compiler cache.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true

say() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s\n' "$*" >&2
  exit 1
}

usage_error() {
  echo "unknown argument '$1'; --help lists them" >&2
  exit 2
}

# Compilers here want up to 1.5 GB each: a small machine builds with fewer of them than cores.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local by_memory=$(((memory_gb * 2 + 2) / 3))
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

# build_preset PRESET [TARGET...]: configures and builds; every target when none is named.
build_preset() {
  local preset=$1
  shift
  local output
  output=$(cmake --preset "$preset" 2>&1) || die "$output"
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  cmake --build --preset "$preset" --parallel "$(build_jobs)" "${targets[@]}"
}

# Prints the comment block at the top of a script as its help.
print_help() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$1"; }

help_if_asked() {
  case $2 in
    -h | --help)
      print_help "$1"
      exit 0
      ;;
  esac
}
