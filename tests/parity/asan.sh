#!/usr/bin/env bash
# One layout with everything in it, 2x2x2 with sequence parallelism, under the sanitizers.  TAP.
set -u
here=$(dirname "$(realpath "$0")")
export DSLAUNCH_BUILD=${DSLAUNCH_BUILD:-$here/../../build}/asan
export ASAN_OPTIONS=detect_leaks=1:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1
echo 1..1
if python3 - "$here" 2>&1 <<'P'
import sys
sys.path.insert(0, sys.argv[1] + "/../tools")
from runs import Space
s = Space()
try:
    r = s.train(dict(data=2, pipeline=2, tensor=2), steps=5, every=2)
    assert len(r.curve("loss")) == 5
except RuntimeError as why:
    sys.exit("\n".join("# " + line for line in str(why).splitlines()))
P
then
    echo "ok 1 - 2x2x2 under ASan and UBSan"
else
    echo "not ok 1 - 2x2x2 under ASan and UBSan"
fi
