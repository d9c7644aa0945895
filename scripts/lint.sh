#!/usr/bin/env bash
# Checks the layout of every source with clang-format, with clang-tidy the files that changed, and
# that headers stand alone which changed or include, however far, one that did.
#
# Usage: scripts/lint.sh [BASE]
#   BASE  commit to compare with; default: the branch point from origin/main, else
#         the parent commit
# FLEET_TIDY_SECONDS bounds clang-tidy's time (default 200): files it had no time for are listed.
# FLEET_HEADER_SECONDS bounds that of the headers (default 120): those left out are counted.
#
# Example: scripts/lint.sh HEAD~3

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"

scripts/install_dependencies.sh tests lint
status=0

say "Layout (clang-format)"
git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs -r -n 32 clang-format --dry-run -Werror || status=1

base=${1:-$(git merge-base HEAD origin/main 2>/dev/null || true)}
if [ -z "$base" ] || [ "$(git rev-parse "$base")" = "$(git rev-parse HEAD)" ]; then
  base=$(git rev-parse --verify -q HEAD~1 || git hash-object -t tree /dev/null)
fi
cmake --preset release >/dev/null
# Where each source is compiled alone.
cmake --preset dev >/dev/null
mapfile -t changed < <(git diff --name-only --diff-filter=d "$base" -- '*.cc')
say "Static checks (clang-tidy) of ${#changed[@]} files changed since ${base:0:12}"
if [ ${#changed[@]} -gt 0 ]; then
  # Clang cannot read what GCC precompiles.
  mkdir -p build/lint
  sed 's/ -include [^ ]*cmake_pch.hxx//' build/dev/compile_commands.json \
    >build/lint/compile_commands.json
  # What it finds in a file is printed at once, since several are checked at a time.
  # shellcheck disable=SC2317  # xargs calls it
  tidy() {
    if [ "$(date +%s)" -ge "$2" ]; then
      echo "no time left: $1"
      return 0
    fi
    grep -q "/$1\"" build/lint/compile_commands.json || return 0
    local found good=0
    found=$(clang-tidy --quiet -p build/lint --extra-arg=-Wno-unknown-warning-option "$1" \
      2>/dev/null) || good=1
    [ -z "$found" ] || printf '%s\n' "$found"
    return "$good"
  }
  export -f tidy
  deadline=$(($(date +%s) + ${FLEET_TIDY_SECONDS:-200}))
  # shellcheck disable=SC2016  # that shell expands them
  printf '%s\n' "${changed[@]}" |
    xargs -P "$(build_jobs)" -I '{}' bash -c 'tidy "$1" "$2"' tidy '{}' "$deadline" || status=1
fi

# The headers that changed since the base, then those that include one of them, however far.
affected_headers() {
  {
    git diff --name-only --diff-filter=d "$base" -- '*.h' | sed 's/^/changed /'
    git grep '^#include "' -- '*.h' | sed -E 's/^([^:]*):#include "([^"]*)".*/includes \1 \2/'
  } | awk '
    $1 == "changed" { affected[$2] = 1 }
    $1 == "includes" { includers[$3] = includers[$3] " " $2 }
    END {
      for (header in affected) { queue[++last] = header; print header }
      for (at = 1; at <= last; ++at) {
        count = split(includers[queue[at]], found, " ")
        for (i = 1; i <= count; ++i) {
          if (found[i] in affected) continue
          affected[found[i]] = 1
          queue[++last] = found[i]
          print found[i]
        }
      }
    }'
}

say "Tree and layers, and headers that stand alone"
mapfile -t headers < <(affected_headers)
objects=()
for header in "${headers[@]}"; do
  name=${header//\//_}
  [ -f "build/release/tests/tree/alone/$name.cc" ] || continue
  objects+=("tests/tree/CMakeFiles/public_headers.dir/alone/$name.cc.o")
done
deadline=$((SECONDS + ${FLEET_HEADER_SECONDS:-120}))
build_preset release tree_test
build/release/bin/tree_test --gtest_brief=1 || status=1
readonly at_once=16
for ((i = 0; i < ${#objects[@]}; i += at_once)); do
  if [ $SECONDS -ge $deadline ]; then
    echo "no time left: $((${#objects[@]} - i)) of ${#objects[@]} headers"
    break
  fi
  build_preset release "${objects[@]:i:at_once}" || status=1
done
exit $status
