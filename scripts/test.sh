#!/usr/bin/env bash
# Installs what is missing, builds the release preset with all tests, and runs them. The last line
# is CTest's count: "N% tests passed, M tests failed out of K".
#
# Usage: scripts/test.sh [CTest option...]      such as -R executor, or -L faults_full
# Without a -L or -LE of your own, tests labelled faults_full (an hour of kills) are left out.
#
# Example: scripts/test.sh -R loss_chart

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"

scripts/install_dependencies.sh tests
say "Building the release preset with all tests"
# Where nvcc is, CUDA code is compiled, too; without a device, its tests say why they skip.
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
if command -v nvcc >/dev/null; then
  configured=$(cmake --preset release -DFLEET_CUDA_TESTS=ON 2>&1) || die "$configured"
fi
build_preset release
if command -v nvcc >/dev/null; then
  for program in cuda_kernels_test cuda_queue_test; do
    [ -x "build/release/bin/$program" ] || die "nvcc is here, but $program was not built"
  done
fi

selection=(-LE faults_full)
for argument in "$@"; do
  case $argument in -L | -LE) selection=() ;; esac
done
say "Running the tests"
log=build/release/tests.log
status=0
ctest --test-dir build/release -j2 --output-on-failure --no-tests=error "${selection[@]}" "$@" \
  2>&1 | tee "$log" || status=$?
count=$(grep -E '^[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -1)
[ -n "$count" ] || die "CTest printed no count; its output is in $log"
echo
echo "$count"
exit $status
