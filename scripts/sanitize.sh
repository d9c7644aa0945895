#!/usr/bin/env bash
# Builds tests under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer,
# and runs them. No suppressions.
#
# Usage: scripts/sanitize.sh [asan|tsan]...      both without an argument
#
# What runs is what is labelled: tests with the CTest label sanitize under asan, those with the
# label threads under tsan.
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

status=0
for preset in "$@"; do
  case $preset in
    asan) label=sanitize runner=() ;;
    tsan) label=threads runner=(without_randomisation) ;;
    *) usage_error "$preset" ;;
  esac
  say "Building for $preset"
  build_preset "$preset" "tests_labelled_$label"
  say "Running the tests labelled $label under $preset"
  "${runner[@]}" ctest --test-dir "build/$preset" -j2 -L "(^|,)$label(,|\$)" --output-on-failure \
    --no-tests=error || status=1
done
exit $status
