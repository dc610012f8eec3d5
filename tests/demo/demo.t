#!/usr/bin/env bash
# The demo learns; the same run with attention zeroed does not learn enough (negative control).  TAP.
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export DSLAUNCH_HOME=$tmp/home XDG_RUNTIME_DIR=$tmp/run
mkdir -m 700 "$tmp/run"
echo 1..2
if tests/demo/demo.sh --set "checkpoint.dir=$tmp/a" >"$tmp/a.log" 2>&1; then
    echo "ok 1 - the demo beats 2.3 nats and the bigram table"
else
    echo "not ok 1 - the demo beats 2.3 nats and the bigram table"
fi
tail -2 "$tmp/a.log" | while IFS= read -r line; do echo "# $line"; done
if DSLAUNCH_WORKER=$DSLAUNCH_PLANT_BUILD/dsworker DSLAUNCH_PLANT=no-attention \
    tests/demo/demo.sh --set "checkpoint.dir=$tmp/b" --set 'job.env=[DSLAUNCH_PLANT]' >"$tmp/b.log" 2>&1; then
    echo "not ok 2 - without attention it must not learn enough"
else
    if grep -q 'did not learn enough' "$tmp/b.log"; then
        echo "ok 2 - without attention it does not learn enough"
    else
        echo "not ok 2 - without attention the run itself failed"
    fi
fi
tail -2 "$tmp/b.log" | while IFS= read -r line; do echo "# $line"; done
