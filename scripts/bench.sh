#!/usr/bin/env bash
# Builds the benchmarks, runs them against their peers, and prints one table of ratios.
#
# Usage: scripts/bench.sh [FILTER]      FILTER: rows whose name contains this text
#
# Every program build/bench/bin/bench_* takes --filter TEXT and --json FILE, and writes the rows it
# measured as an array of objects: name, value, unit, peer, peer_value, ratio, target, rounds, valid,
# note, placement_us.
# Writes build/bench/summary.json.
#
# Example: scripts/bench.sh mlp

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"

filter=${1:-}
scripts/install_dependencies.sh tests bench
say "Building the bench preset"
build_preset bench

rows=build/bench/rows
rm -rf "$rows"
mkdir -p "$rows"
status=0
for program in build/bench/bin/bench_*; do
  [ -x "$program" ] || die "There are no benchmarks in build/bench/bin."
  name=$(basename "$program")
  say "$name"
  "$program" --filter "$filter" --json "$rows/$name.json" || {
    echo "$name failed" >&2
    status=1
  }
done

say "Results"
build/bench/bin/fleet_bench_report --summary build/bench/summary.json "$rows"/*.json || status=1
exit $status
