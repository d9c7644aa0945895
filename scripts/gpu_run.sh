#!/usr/bin/env bash
# Runs on a machine with a GPU everything that needs one, in three parts that can be stopped and taken
# up again: 1 the tests of CUDA and NCCL, 2 the same under compute-sanitizer, 3 examples on the GPU,
# with servers, and as two and four ranks that sum by NCCL to the bytes of one alone, and rows of
# docs/benchmarks.md, beside PyTorch where python3 has it. Items that passed before with the same
# programs are not run again; those that never ran come first, and those that ran out of time last.
#
# Usage: scripts/gpu_run.sh [--part 1|2|3] [BUILD_FOLDER]
#   --part        this part alone; without it all three, one after the other
#   BUILD_FOLDER  what is built already, with what it needs; without it the preset cuda is built
# FLEET_GPU_SECONDS bounds a part (default 480): items that there was no time for are listed, and one
# that does not end is killed.
#
# What an item printed is BUILD_FOLDER/gpu_run/ITEM.log. The report of all runs is printed, and is
# BUILD_FOLDER/gpu_run/report.txt, written anew after each item. Ends with an error when an item
# failed or did not run, and when the machine has no device that CUDA can use: tests that skip would
# say nothing.
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
devices=$(nvidia-smi --query-gpu=index,name,driver_version,compute_cap,memory.total --format=csv 2>&1) ||
  die "nvidia-smi fails: $devices"
printf '%s\n' "$devices"

tests=(cuda_kernels_test cuda_queue_test)
programs=(local_trainer collective_train distributed_train launch launch_ps fleet_agent bench_gpu bench_nccl
  bench_updates bench_threads gemm_table)
if [ -z "$folder" ]; then
  folder=build/cuda
  command -v nvcc >/dev/null || export PATH=$PATH:/usr/local/cuda/bin
  say "Building the preset cuda"
  build_preset cuda "${tests[@]}" "${programs[@]}"
fi
results=$folder/gpu_run
mkdir -p "$results"
# Results of other programs do not count.
build=$(for name in "${tests[@]}" "${programs[@]}"; do
  [ ! -e "$folder/bin/$name" ] || sha256sum <"$folder/bin/$name"
done | sha256sum | cut -c1-12)

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

updates() {
  local optimizer
  for optimizer in momentum adam; do "$folder/bin/bench_updates" --optimizer "$optimizer"; done
}

# The batch comes from the host; steps has it on the device.
feeds() {
  "$folder/bin/bench_gpu" --net lenet --rows 512 --graph
  "$folder/bin/bench_gpu" --net resnet50 --rows 32 --graph
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

# In mixed precision, beside PyTorch's.
halves() {
  local net
  for net in mlp resnet50 transformer; do
    "$folder/bin/bench_gpu" --net "$net" --rows 32 --device_feed --graph --amp bfloat16
    if python3 -c "import torch" 2>/dev/null; then
      python3 benchmarks/gpu/torch_steps.py --net "$net" --rows 32 --form captured --bf16
    fi
  done
}

all_reduces() {
  local id other
  id=$(mktemp -u)
  shares_gpu "$folder/bin/bench_nccl" --rank 1 --id "$id" &
  other=$!
  shares_gpu "$folder/bin/bench_nccl" --rank 0 --id "$id" || {
    kill $other # it waits for the rank that is gone
    return 1
  }
  wait $other
}

items_of() {
  case $1 in
    1) printf '%s\n' "${tests[@]}" ;;
    2) for test in "${tests[@]}"; do
      for tool in memcheck racecheck initcheck; do echo "$test.$tool"; done
    done ;;
    3) printf '%s\n' ranks_2 ranks_4 servers all_reduces updates feeds small_steps steps halves scaling products ;;
  esac
}

run_item() {
  case $1 in
    ranks_*) ranks "${1#ranks_}" ;;
    servers | all_reduces) "$1" ;;
    updates | feeds | halves) "$1" ;;
    products) "$folder/bin/gemm_table" ;;
    scaling) "$folder/bin/bench_threads" --stored benchmarks/stored.json ;;
    small_steps) steps 512 mlp lenet ;;
    steps) steps 32 resnet50 transformer ;;
    *.*) compute-sanitizer --tool "${1#*.}" --error-exitcode 1 "$folder/bin/${1%%.*}" ;;
    *) "$folder/bin/$1" ;;
  esac
}

# Of this build; nothing for an item that never ran.
result_of() { grep -s ", build $build\$" "$results/$1.result" || true; }

order_of() {
  local item
  for item in $(items_of "$1"); do
    case $(result_of "$item") in
      passed*) ;;
      "") echo "0 $item" ;;
      failed*) echo "1 $item" ;;
      *) echo "2 $item" ;;
    esac
  done | sort -s -k1,1n | cut -d " " -f 2
}

write_report() {
  local part item result
  printf '%s\n' "$devices"
  for part in 1 2 3; do
    for item in $(items_of "$part"); do
      result=$(result_of "$item")
      printf '%-34s %s\n' "$part $item" "${result:-not run}"
    done
  done
}

# So long may an item take to end when it is told to.
grace=5
running= # the process group of an item
trap '[ -z "$running" ] || kill -KILL -- "-$running" 2>/dev/null || true' EXIT

# What an item has left behind would hold the device.
end_group() {
  local end=$((SECONDS + grace))
  while kill -0 -- "-$running" 2>/dev/null; do
    [ $SECONDS -lt $end ] || kill -KILL -- "-$running" 2>/dev/null || break
    sleep 0.1
  done
  running=
}

run_part() {
  local part=$1 end=$((SECONDS + ${FLEET_GPU_SECONDS:-480})) item left begin status word
  for item in $(order_of "$part"); do
    left=$((end - SECONDS - grace))
    if [ $left -le 0 ]; then
      echo "no time left: $item"
      continue
    fi
    say "Part $part: $item"
    begin=$SECONDS status=0
    export folder results
    timeout "$left" bash -e -c "$(declare -f trains shares_gpu ranks servers updates feeds steps halves all_reduces run_item)
      run_item $item" \
      >"$results/$item.log" 2>&1 </dev/null &
    running=$! # timeout makes a group of its own
    wait $running || status=$?
    end_group
    tail -5 "$results/$item.log"
    if grep -q "no CUDA device" "$results/$item.log"; then
      die "$item found no device that CUDA can use; $results/$item.log has the reason"
    fi
    case $status in
      0) word=passed ;;
      124) word="ran out of time" ;;
      *) word="failed ($status)" ;;
    esac
    echo "$word in $((SECONDS - begin)) s, build $build" >"$results/$item.result"
    write_report >"$results/report.txt"
  done
}

for part in "${parts[@]}"; do run_part "$part"; done

write_report >"$results/report.txt"
say "Report"
cat "$results/report.txt"
for part in "${parts[@]}"; do
  [ -z "$(order_of "$part")" ] || exit 1
done
