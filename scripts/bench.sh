#!/usr/bin/env bash
# Builds the benchmarks, runs them against their peers, and prints one table of ratios.
#
# Usage: scripts/bench.sh [--strict] [--document] [--against COMMIT] [FILTER]
#   FILTER    rows whose name contains this text
#   --document
#             put the table into docs/benchmarks.md, its rows against other systems into README.md,
#             both with the machine and the day, and draw docs/benchmarks.svg
#   --against COMMIT
#             measure this tree against that commit's, with the benchmarks of this one, in 15
#             interleaved pairs a row; a row that is short is measured again in 30, and counts when
#             it stays so. Writes build/bench/against.json; fails when a row is short
#   --strict  fail when a row missed its target or its bound, or is invalid; a row that does not run
#             fails always
#
# Every program build/bench/bin/bench_* takes --filter TEXT and --json FILE, and writes the rows it
# measured as an array of objects: name, value, unit, peer, peer_value, ratio, ratio_min, ratio_max,
# target, bound, rounds, verdict, invalid, error, skipped, note, placement_us, machine, date.
# Writes build/bench/summary.json. The last line counts the rows, and names those that missed, are
# invalid, failed or were skipped. A row that takes more than four minutes is ended, and failed.
#
# Peers from PyPI are measured where they are installed:
#   python3 -m venv build/peers && build/peers/bin/pip install torch jax
# They run with $FLEET_BENCH_PYTHON, else build/peers/bin/python, else python3.
#
# Example: scripts/bench.sh mlp

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"

filter= strict=() against= document=()
while [ $# -gt 0 ]; do
  case $1 in
    --strict) strict=(--strict) ;;
    --document)
      document=(--page docs/benchmarks.md --brief_page README.md --chart docs/benchmarks.svg)
      ;;
    --against)
      [ $# -gt 1 ] || die "--against wants a commit"
      against=$2
      shift
      ;;
    -*) usage_error "$1" ;;
    *) filter=$1 ;;
  esac
  shift
done
if [ -n "$against" ]; then
  git rev-parse --quiet --verify "$against^{commit}" >/dev/null ||
    die "There is no commit '$against'."
fi
scripts/install_dependencies.sh tests bench

if [ -z "${FLEET_BENCH_PYTHON:-}" ]; then
  FLEET_BENCH_PYTHON=python3
  [ ! -x build/peers/bin/python ] || FLEET_BENCH_PYTHON=$PWD/build/peers/bin/python
fi
export FLEET_BENCH_PYTHON
# PyTorch's package has its C++ library, too.
torch2=$("$FLEET_BENCH_PYTHON" -c 'import os, torch; print(os.path.dirname(torch.__file__))' \
  2>/dev/null) || torch2=

say "Building the bench preset"
configured=$(cmake --preset bench -DFLEET_BENCH_TORCH2="$torch2" 2>&1) || die "$configured"
build_preset bench

# Builds the programs of this tree that the other tree has too. $1: its folder, $2: its log.
build_other() {
  (
    cd "$1"
    cmake --preset bench &&
      cmake --build --preset bench --parallel "$(build_jobs)" --target "${programs[@]}"
  ) >"$2" 2>&1
}

# The other commit's library under this tree's benchmarks, built apart; under its own where its
# library cannot be built with these.
if [ -n "$against" ]; then
  other=build/against
  say "Building $against in $other"
  git worktree remove --force "$other" 2>/dev/null || rm -rf "$other"
  git worktree prune
  git worktree add --quiet --detach "$other" "$against"
  trap 'git worktree remove --force "$other"' EXIT
  programs=()
  for program in build/bench/bin/bench_*; do
    program=$(basename "$program")
    [ "$program" = bench_against ] || programs+=("$program")
  done
  rm -rf "$other/benchmarks" "$other/tools"
  cp -r benchmarks tools "$other/"
  if ! grep -q benchmarks/harness "$other/CMakeLists.txt"; then
    sed -i 's|^  add_subdirectory(benchmarks)|  add_subdirectory(benchmarks/harness)\n&|' \
      "$other/CMakeLists.txt"
  fi
  log=build/bench/against.log
  if ! build_other "$other" "$log"; then
    echo "$against cannot be built with this tree's benchmarks ($log): its own are measured." >&2
    rm -rf "$other/benchmarks" "$other/tools" "$other/build"
    git -C "$other" checkout --quiet -- .
    own=()
    for program in "${programs[@]}"; do
      grep -rqw "$program" "$other"/benchmarks/CMakeLists.txt "$other"/benchmarks/*/CMakeLists.txt &&
        own+=("$program")
    done
    programs=("${own[@]}")
    build_other "$other" "$log" || {
      tail -n 20 "$log" >&2
      die "$against cannot be built with its own benchmarks either; all of it is in $log."
    }
  fi
  build/bench/bin/bench_against --ours build/bench/bin --theirs "$other/build/bench/bin" \
    --name "$against" --filter "$filter" --json build/bench/against.json
  exit
fi

SECONDS=0
rows=build/bench/rows
rm -rf "$rows"
mkdir -p "$rows"
status=0
for program in build/bench/bin/bench_*; do
  [ "$(basename "$program")" != bench_against ] || continue
  [ -x "$program" ] || die "There are no benchmarks in build/bench/bin."
  name=$(basename "$program")
  say "$name"
  "$program" --filter "$filter" --json "$rows/$name.json" || {
    echo "$name failed" >&2
    status=1
  }
done

say "Results, after $((SECONDS / 60)) min $((SECONDS % 60)) s"
build/bench/bin/fleet_bench_report "${strict[@]}" "${document[@]}" \
  --summary build/bench/summary.json "$rows"/*.json || status=1
if ! grep -q '"name"' build/bench/summary.json; then
  die "No row's name contains '$filter'; build/bench/bin/bench_* --list prints them."
fi
exit $status
