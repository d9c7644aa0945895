#!/usr/bin/env bash
# Builds tests under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer,
# and runs them. No suppressions.
#
# Usage: scripts/sanitize.sh [asan|tsan]...      both without an argument
#
# What runs is what is labelled: tests with the CTest label sanitize under asan, those with the
# label threads under tsan. FLEET_SANITIZE_SECONDS bounds the time: programs that there was none to
# build for are listed.
#
# Example: scripts/sanitize.sh tsan

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"

scripts/install_dependencies.sh tests
[ $# -gt 0 ] || set -- asan tsan

export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

# ThreadSanitizer of GCC 12 cannot map its shadow where the kernel randomises addresses widely.
without_randomisation() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

# The bound of all presets together; they share what is left evenly.
end=$((SECONDS + ${FLEET_SANITIZE_SECONDS:-1000000}))

# Builds the programs of a list, from another one on for each commit, so that it is not always the
# same ones for which there is no time; one is always built. The names of the others are in `left_out`.
build_programs() {
  local preset=$1 list=$2 until=$3
  local programs=() first program
  mapfile -t programs <"$list"
  first=$((16#$(git rev-parse HEAD | cut -c1-6) % ${#programs[@]}))
  local built=0
  left_out=()
  for program in "${programs[@]:first}" "${programs[@]:0:first}"; do
    if [ $built -eq 0 ] || [ $SECONDS -lt "$until" ]; then
      built=$((built + 1))
      cmake --build --preset "$preset" --parallel "$(build_jobs)" --target "$program" |
        grep -v '^ninja: no work to do' || [ "${PIPESTATUS[0]}" -eq 0 ] || return 1
    else
      left_out+=("$program")
    fi
  done
}

status=0
presets_left=$#
for preset in "$@"; do
  case $preset in
    asan) label=sanitize runner=() ;;
    tsan) label=threads runner=(without_randomisation) ;;
    *) usage_error "$preset" ;;
  esac
  say "Building for $preset"
  configured=$(cmake --preset "$preset" 2>&1) || die "$configured"
  share=$(((end - SECONDS) / presets_left))
  presets_left=$((presets_left - 1))
  # A third of the time is for running.
  build_programs "$preset" "build/$preset/tests_labelled_$label.txt" $((SECONDS + share * 2 / 3)) ||
    die "The tests do not build for $preset."
  skipped=$(IFS='|' && echo "${left_out[*]}")
  [ -z "$skipped" ] || printf 'no time left: %s\n' "${left_out[@]}"
  say "Running the tests labelled $label under $preset"
  "${runner[@]}" ctest --test-dir "build/$preset" -j2 -L "(^|,)$label(,|\$)" --output-on-failure \
    --no-tests=error -E "^(${skipped:-none})(\.|_)" || status=1
done
exit $status
