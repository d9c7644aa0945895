#!/usr/bin/env bash
# Installs with apt what the project needs, and says what each package is for.
#
# Usage: scripts/install_dependencies.sh [--no-install] [GROUP...]
#   GROUP         build (always), tests, lint, bench; without one: build and tests
#   --no-install  print the packages, the reasons and the apt line, and stop (also: --print)
#
# Example: scripts/install_dependencies.sh --no-install tests lint

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages() {
  cat <<'LIST'
build|g++|C++20 compiler
build|cmake|configures the build (3.25 or newer)
build|ninja-build|runs the build
build|libboost-dev|Boost.Asio, the parameter servers' networking
build|libboost-program-options-dev|command lines
build|libcereal-dev|binary form of programs and control messages
build|nlohmann-json3-dev|JSON: metrics, manifests, programs
build|libssl-dev|HMAC for the handshake of every connection
build|zlib1g-dev|reads data sets that gzip compressed
build|libzstd-dev|reads data sets that zstd compressed
build|libdnnl-dev|oneDNN: matrix products on the CPU
build|libopenmpi-dev|collectives on the CPU
build|openmpi-bin|mpirun, which launch uses for collective workers
tests|libgtest-dev|GoogleTest
tests|libgmock-dev|GoogleMock's matchers
lint|git|tells which files are the project's, and which changed
lint|clang-format|layout of the sources
lint|clang-tidy|static checks
bench|libtorch-dev|LibTorch, the peer of the single-process benchmarks
bench|libopenblas0-pthread|the BLAS that gives LibTorch its speed
bench|libopenblas0-openmp|the same, sharing LibTorch's threads: the faster one counts
LIST
}

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

groups=
no_install=
for argument in "$@"; do
  case $argument in
    --no-install | --print) no_install=yes ;;
    build | tests | lint | bench) groups+=" $argument" ;;
    -h | --help)
      print_help "$0"
      exit 0
      ;;
    *) usage_error "$argument" ;;
  esac
done
groups=" build ${groups:-tests} "

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "No apt here. Install these with your own package manager, then run the script again:" >&2
  packages | cut -d'|' -f2,3 | sed 's/|/: /' >&2
  exit 1
fi

wanted=() missing=() reasons=
while IFS='|' read -r group package why; do
  case $groups in *" $group "*) ;; *) continue ;; esac
  wanted+=("$package")
  state=present
  if ! is_installed "$package"; then
    state=missing
    missing+=("$package")
  fi
  if [ $state = missing ] || [ -n "$no_install" ]; then
    reasons+=$(printf '  %-29s %-8s %s' "$package" "$state" "$why")$'\n'
  fi
done < <(packages)

sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
apt_install=("${sudo[@]}" apt-get install -y --no-install-recommends)

if [ -n "$no_install" ]; then
  printf '%s' "$reasons"
  echo "${apt_install[*]} ${wanted[*]}"
  exit 0
fi
if [ ${#missing[@]} -eq 0 ]; then
  echo "All ${#wanted[@]} packages are installed."
  exit 0
fi

echo "Installing ${#missing[@]} of ${#wanted[@]} packages with apt:"
printf '%s' "$reasons"
if [ ${#sudo[@]} -gt 0 ] && ! command -v sudo >/dev/null; then
  die "Neither root nor sudo here. As root: apt-get install -y --no-install-recommends ${missing[*]}"
fi
export DEBIAN_FRONTEND=noninteractive
# A fresh machine's package lists are empty or old: fetch them when the first try finds nothing.
if ! "${apt_install[@]}" -qq "${missing[@]}" </dev/null >/dev/null 2>&1; then
  "${sudo[@]}" apt-get update -qq </dev/null
  "${apt_install[@]}" -qq "${missing[@]}" </dev/null >/dev/null
fi
echo "Installed."
