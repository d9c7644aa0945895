#!/usr/bin/env bash
# Trains one net three ways on this machine: in one process, through two parameter servers with two
# workers, and with two collective ranks; then shows that the curves coincide.
#
# Usage: scripts/quickstart.sh [--no-install] [--steps N]
#   --no-install  print what would be installed and why, and stop
#   --steps N     training steps of each run (default 1000)
#
# Writes build/quickstart/: quickstart.svg, summary.json, and each run's metrics, logs and model.

# shellcheck source=scripts/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

steps=1000
while [ $# -gt 0 ]; do
  case $1 in
    --no-install | --print) exec scripts/install_dependencies.sh --no-install ;;
    --steps)
      steps=${2:?--steps needs a number}
      shift 2
      ;;
    -h | --help) help_if_asked "$0" "$1" ;;
    *) usage_error "$1" ;;
  esac
done

readonly bin=build/release/bin
readonly out=build/quickstart
readonly net=(--steps "$steps" --shards 2 --seed 1 --progress)

scripts/install_dependencies.sh
build_begin=$SECONDS
say "Building what the quick start runs"
build_preset release local_trainer distributed_train collective_train launch launch_ps fleet_agent \
  fleet_report
built=$((SECONDS - build_begin))
rm -rf "$out"
mkdir -p "$out"

# train MODE COMMAND...: one run; its output is on the terminal, its curve in MODE.json.
train() {
  local mode=$1
  shift
  say "$mode: $*"
  "$@" --metrics_file "$out/$mode.json" --model_dir "$out/$mode.model" ||
    die "The $mode run failed; its logs are in $out/$mode.logs."
}

train local "$bin/local_trainer" "${net[@]}"
train parameter_server "$bin/launch_ps" --worker_num 2 --server_num 2 \
  --log_dir "$out/parameter_server.logs" --progress "$bin/distributed_train" "${net[@]}"
train collective "$bin/launch" --nproc_per_node 2 --log_dir "$out/collective.logs" --progress \
  "$bin/collective_train" "${net[@]}"

say "One program, three ways to run it"
"$bin/fleet_report" --title "Quick start: one program, three ways to run it" \
  --svg "$out/quickstart.svg" --summary "$out/summary.json" --max_difference 1e-6 \
  "$out/local.json" "$out/parameter_server.json" "$out/collective.json"

cat <<END

  Took     $SECONDS s, of which building $built s, on $(nproc) cores
  Picture  $out/quickstart.svg
  Numbers  $out/summary.json
  Logs     $out/parameter_server.logs/  $out/collective.logs/

  Try next:
    diff examples/quick_start/local_trainer.cc examples/quick_start/distributed_train.cc
    cmp $out/local.model/params.safetensors $out/parameter_server.model/params.safetensors
    $bin/launch_ps --worker_num 4 --server_num 1 $bin/distributed_train --shards 4 --progress
END
