#!/usr/bin/env bash
# Runs on a machine with a GPU everything that needs one, in three parts that can be stopped and taken
# up again: 1 the tests of CUDA and NCCL, 2 the same under compute-sanitizer, 3 examples on the GPU,
# with servers, and as two and four ranks that sum by NCCL to the bytes of one alone, and rows of
# docs/benchmarks.md, beside PyTorch where python3 has it. Items that passed before are not run
# again; those that never ran come first.
#
# Usage: scripts/gpu_run.sh [--part 1|2|3] [BUILD_FOLDER]
#   --part        this part alone; without it all three, one after the other
#   BUILD_FOLDER  what is built already, with what it needs; without it the preset cuda is built
# FLEET_GPU_SECONDS bounds a part (default 480): items that there was no time for are listed.
#
# What an item printed is BUILD_FOLDER/gpu_run/ITEM.log, and the report of all runs, also printed,
# BUILD_FOLDER/gpu_run/report.txt. Ends with an error when an item failed or did not run, and when the
# machine has no device that CUDA can use: tests that skip would say nothing.
#
# Example: scripts/gpu_run.sh --part 1 build/cuda

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$0" "${1:-}"

parts=(1 2 3)
folder=
while [ $# -gt 0 ]; do
  case $1 in
    --part)
      case ${2:-} in [123]) parts=("$2") ;; *) die "--part is 1, 2 or 3, not '${2:-}'" ;; esac
      shift 2
      ;;
    -*) usage_error "$1" ;;
    *)
      folder=$1
      shift
      ;;
  esac
done

say "Devices"
command -v nvidia-smi >/dev/null || die "nvidia-smi is not there: this machine has no NVIDIA driver"
devices=$(nvidia-smi --query-gpu=index,name,driver_version,compute_cap,memory.total --format=csv)
printf '%s\n' "$devices"

tests=(cuda_kernels_test cuda_queue_test)
if [ -z "$folder" ]; then
  folder=build/cuda
  command -v nvcc >/dev/null || export PATH=$PATH:/usr/local/cuda/bin
  say "Building the preset cuda"
  build_preset cuda "${tests[@]}" local_trainer collective_train distributed_train launch launch_ps \
    fleet_agent bench_gpu bench_nccl
fi
results=$folder/gpu_run
mkdir -p "$results"

# An example for a few steps; what it learned is in the item's metrics file, its model in a folder.
trains() {
  local item=$1
  shift
  "$@" --steps 60 --shards 4 --data_dir examples/data/digits --metrics_file "$results/$item.json" \
    --model_dir "$results/$item.model"
}

# Several processes share the GPU, which NCCL 2.30 and newer allow.
shares_gpu() {
  NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=1 \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
}

# Ranks whose sums NCCL takes, and whose model is that of a local run, byte for byte.
ranks() {
  local count=$1 item=ranks_$1
  trains alone "$folder/bin/local_trainer" --place gpu:0
  shares_gpu trains "$item" "$folder/bin/launch" --nproc_per_node "$count" --collectives sockets --tee \
    --log_dir "$results/$item.logs" "$folder/bin/collective_train" --place gpu:0
  grep -q "are summed by NCCL" "$results/$item.logs"/*
  diff -r "$results/alone.model" "$results/$item.model"
}

servers() {
  "$folder/bin/launch_ps" --worker_num 2 --server_num 2 --log_dir "$results/servers.logs" \
    "$folder/bin/distributed_train" --place gpu:0 --strategy sync --steps 60 --data_dir examples/data/digits
}

steps() {
  local rows=$1 net
  shift
  for net in "$@"; do
    "$folder/bin/bench_gpu" --net "$net" --rows "$rows" --device_feed --graph
    if python3 -c "import torch" 2>/dev/null; then
      python3 benchmarks/gpu/torch_steps.py --net "$net" --rows "$rows" --form captured
    fi
  done
}

all_reduces() {
  local id
  id=$(mktemp -u)
  shares_gpu "$folder/bin/bench_nccl" --rank 1 --id "$id" &
  shares_gpu "$folder/bin/bench_nccl" --rank 0 --id "$id"
  wait $!
}

items_of() {
  case $1 in
    1) printf '%s\n' "${tests[@]}" ;;
    2) for test in "${tests[@]}"; do
      for tool in memcheck racecheck initcheck; do echo "$test.$tool"; done
    done ;;
    3) printf '%s\n' ranks_2 ranks_4 servers all_reduces small_steps steps ;;
  esac
}

run_item() {
  case $1 in
    ranks_*) ranks "${1#ranks_}" ;;
    servers | all_reduces) "$1" ;;
    small_steps) steps 512 mlp lenet ;;
    steps) steps 32 resnet50 transformer ;;
    *.*) compute-sanitizer --tool "${1#*.}" --error-exitcode 1 "$folder/bin/${1%%.*}" ;;
    *) "$folder/bin/$1" ;;
  esac
}

run_part() {
  local part=$1 end=$((SECONDS + ${FLEET_GPU_SECONDS:-480})) item left
  local order=()
  # Those that failed before come after those that never ran.
  for item in $(items_of "$part"); do [ -e "$results/$item.result" ] || order+=("$item"); done
  for item in $(items_of "$part"); do
    [ -e "$results/$item.result" ] && ! grep -q ^passed "$results/$item.result" && order+=("$item")
  done
  for item in "${order[@]}"; do
    left=$((end - SECONDS))
    if [ $left -lt 5 ]; then
      echo "no time left: $item"
      continue
    fi
    say "Part $part: $item"
    local begin=$SECONDS status=0
    export folder results
    timeout "$left" bash -e -c "$(declare -f trains shares_gpu ranks servers steps all_reduces run_item)
      run_item $item" \
      >"$results/$item.log" 2>&1 </dev/null || status=$?
    tail -5 "$results/$item.log"
    if grep -q "no CUDA device" "$results/$item.log"; then
      die "$item found no device that CUDA can use; $results/$item.log has the reason"
    fi
    local word="failed ($status)"
    [ $status -ne 0 ] || word=passed
    [ $status -ne 124 ] || word="ran out of time"
    echo "$word in $((SECONDS - begin)) s" >"$results/$item.result"
  done
}

for part in "${parts[@]}"; do run_part "$part"; done

status=0
{
  printf '%s\n' "$devices"
  for part in 1 2 3; do
    for item in $(items_of "$part"); do
      printf '%-34s %s\n' "$part $item" "$(cat "$results/$item.result" 2>/dev/null || echo "not run")"
    done
  done
} >"$results/report.txt"
say "Report"
cat "$results/report.txt"
for part in "${parts[@]}"; do
  for item in $(items_of "$part"); do grep -q ^passed "$results/$item.result" || status=1; done
done 2>/dev/null
exit $status
