#!/usr/bin/env bash
# Runs the CUDA tests on a machine with a GPU: prints its devices, builds the preset cuda with the
# tests labelled cuda (or takes a folder that is built already), and runs them.
#
# Usage: scripts/gpu_run.sh [BUILD_FOLDER]
#
# Ends with an error when the machine has no device that CUDA can use: tests that skip would say
# nothing. What was printed is kept in BUILD_FOLDER/gpu_run.log.
#
# Example: scripts/gpu_run.sh build/cuda

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"
case ${1:-} in -*) usage_error "$1" ;; esac

say "Devices"
command -v nvidia-smi >/dev/null || die "nvidia-smi is not there: this machine has no NVIDIA driver"
nvidia-smi --query-gpu=index,name,driver_version,compute_cap,memory.total --format=csv

folder=${1:-build/cuda}
programs=(cuda_kernels_test cuda_queue_test)
if [ $# -eq 0 ]; then
  command -v nvcc >/dev/null || export PATH=$PATH:/usr/local/cuda/bin
  say "Building the preset cuda"
  build_preset cuda "${programs[@]}"
fi

status=0
for program in "${programs[@]}"; do
  [ -x "$folder/bin/$program" ] || die "$folder/bin/$program is not there: build that target first"
  say "$program"
  "$folder/bin/$program" 2>&1 | tee "$folder/gpu_run.log" || status=1
  if grep -q "no CUDA device" "$folder/gpu_run.log"; then
    die "the tests found no device that CUDA can use; the reason is above"
  fi
done
exit $status
