#!/usr/bin/env bash
# Measures which back end of matrix products is the fastest for which shapes, and writes the table
# of this machine's instruction set: fluid/kernels/cpu/math/gemm_table_<set>.inc. Takes some
# minutes; the machine should do nothing else.
#
# Usage: scripts/gemm_table.sh
#
# Example: scripts/gemm_table.sh && git diff --stat

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"
[ $# -eq 0 ] || usage_error "$1"

build_preset bench gemm_table
set_name=avx2
grep -qw avx512f /proc/cpuinfo && set_name=avx512
file=fluid/kernels/cpu/math/gemm_table_$set_name.inc
build/bench/bin/gemm_table >"build/bench/gemm_table.inc"
mv build/bench/gemm_table.inc "$file"
say "$file"
