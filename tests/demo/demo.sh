#!/usr/bin/env bash
# The main job, and whether it learned: held-out loss against 2.3 nats per byte and against a bigram
# table.  demo.sh [up's arguments].  Exit 0 only if it beats both.
set -eu
cd "$(dirname "$0")/../.."
build=${DSLAUNCH_BUILD:-build}
spec=${DSLAUNCH_SPEC:-configs/local.yaml}
job=$(sed -n 's/^name: *//p' "$spec")
state=${DSLAUNCH_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/dslaunch}/$job
start=$(date +%s)
"$build/dslaunch" up "$spec" --fresh "$@"
took=$(($(date +%s) - start))
licenses=/usr/share/common-licenses
bigram=$(python3 tests/tools/bigram.py $licenses/MPL-2.0 $licenses/*)
loss=$(python3 - "$state/metrics.jsonl" <<'P'
import json, sys
v = [m["validation_loss"] for m in map(json.loads, open(sys.argv[1])) if "validation_loss" in m]
print(f"{v[-1]:.4f}")
P
)
echo
echo "held-out text MPL-2.0, nats per byte: this run $loss, bigram table $bigram, target 2.3  ($took s)"
awk -v l="$loss" -v b="$bigram" 'BEGIN { exit !(l < b && l < 2.3) }' || {
    echo "the model did not learn enough" >&2
    exit 1
}
