#!/usr/bin/env bats
# restart, ps and status --watch.

bats_require_minimum_version 1.5.0
load job

setup() {
    job_setup
}

teardown() {
    job_teardown
}

lines_of() { # lines_of PATTERN FILE AT_LEAST
    [ "$(grep -ac "$1" "$2")" -ge "$3" ]
}

@test "restart finishes the step, goes on from it in a new generation, and costs nothing" {
    MAX=0 spec 100000
    run -0 up -d
    for g in 2 3; do
        wait_for 5 is "s['step'] > 2"
        run -0 "$DSLAUNCH" restart job
        [[ $output == *"a new generation is asked for; this one stops after its step"* ]]
        [[ $output == *"job: generation $g runs, 4 workers"* ]]
        is "s['live'] and s['generation'] == $g and s['restarts'] == 0 and 'failure' not in s"
    done
    # No step is lost and none is done twice.
    wait_for 5 is "s['step'] > 10"
    run -0 "$DSLAUNCH" down
    python3 - "$DSLAUNCH_HOME/job/metrics.jsonl" <<'PY'
import json, sys
steps = [json.loads(l)["step"] for l in open(sys.argv[1])]
assert steps == list(range(1, len(steps) + 1)), steps
PY
}

@test "restart of ranks that do not listen kills them after the grace, at the budget's cost" {
    GRACE=1s spec 100000
    FAKE_DEAF=1 run -0 up -d
    run -0 "$DSLAUNCH" restart
    [[ $output == *"generation 2 runs"* ]]
    is "s['restarts'] == 1 and s['generation'] == 2"
    run -0 "$DSLAUNCH" down --now
}

@test "restart of what does not run is refused" {
    run -2 "$DSLAUNCH" restart
    [[ $output == *"there is no job yet"* ]]
    spec 3
    run -0 up
    run -2 "$DSLAUNCH" restart job
    [[ $output == *"job is not running"* ]]
    run -2 "$DSLAUNCH" restart job job
    run -2 "$DSLAUNCH" restart --now
}

@test "restart of a job that is stopping is refused" {
    GRACE=3s spec 100000
    FAKE_DEAF=1 run -0 up -d
    "$DSLAUNCH" down >down.out 2>&1 &
    pid=$!
    wait_for 5 is "s['state'] == 'stopping'"
    run -2 "$DSLAUNCH" restart
    [[ $output == *"the job is ending"* ]]
    run -0 "$DSLAUNCH" down --now
    wait $pid
}

@test "a restart that was asked of a controller that was killed still happens" {
    MAX=1 GRACE=2s spec 100000
    FAKE_DEAF=1 run -0 up -d
    wait_for 5 is "s['step'] > 2"
    "$DSLAUNCH" restart >restart.out 2>&1 &
    pid=$!
    wait_for 5 is "s['state'] == 'stopping'"
    kill -KILL "$(field "s['controller']['pid']")"
    run ! wait $pid
    grep -q "the controller was lost" restart.out
    grep -q restart_asked "$DSLAUNCH_HOME/job/journal.jsonl"
    run -0 up -d
    is "s['live'] and s['generation'] == 2"
    run -0 "$DSLAUNCH" down --now
}

@test "ps lists all jobs, live ones first" {
    run -0 "$DSLAUNCH" ps
    [ "${#lines[@]}" = 1 ]
    spec 3
    run -0 up --set name=first
    rm "$FAKE_DIR/step"
    run -0 up -d --set name=second --set train.steps=100000
    mkdir "$SPACE/fake2"
    FAKE_DIR=$SPACE/fake2 run -0 up --set name=third
    mkdir "$DSLAUNCH_HOME/broken"
    echo nonsense >"$DSLAUNCH_HOME/broken/journal.jsonl"
    run -0 "$DSLAUNCH" ps
    [[ ${lines[0]} == JOB*STATE*GEN*STEP*LOSS*AGE*HOST ]]
    [[ ${lines[1]} =~ ^second\ +running\ +1\ +[0-9]+/100000\ +[0-9.]+\ +[0-9]+s\ +$(hostname)$ ]]
    [[ ${lines[2]} =~ ^third\ +completed\ +1\ +3/3\  ]]
    [[ ${lines[3]} =~ ^first\ +completed\ +1\ +3/3\  ]]
    [[ ${lines[4]} =~ ^broken\ +unreadable\  ]]
    [ "${#lines[@]}" = 5 ]
    run -2 "$DSLAUNCH" ps job
    run -0 "$DSLAUNCH" down second
}

@test "status --watch: block after block until the job ends; a document a line as JSON" {
    spec 100000
    run -0 up -d
    "$DSLAUNCH" status --watch >text 2>&1 &
    text=$!
    "$DSLAUNCH" status job --watch --json >json 2>&1 &
    json=$!
    wait_for 10 lines_of '^job: running' text 3
    wait_for 10 lines_of '^{' json 3
    run -0 "$DSLAUNCH" down
    wait $text
    wait $json
    grep -q '^job: stopping' text
    grep -q '^job: ended (stopped, exit code 0)' text
    run ! grep -q $'\033' text
    tail -n 1 json | python3 -c "import json,sys; s=json.load(sys.stdin); assert s['outcome'] == 'stopped'"
    run -0 "$DSLAUNCH" status --watch # of an ended one: once
    [ "$(grep -c '^job: ' <<<"$output")" = 1 ]
}

@test "status --watch on a terminal paints over what was there" {
    spec 100000
    run -0 up -d
    export DSLAUNCH
    python3 - <<'PY' &
import os, pty, fcntl, termios, struct, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(os.environ["DSLAUNCH"], ["dslaunch", "status", "--watch"])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 80, 0, 0))
out = b""
while True:
    try:
        got = os.read(fd, 65536)
    except OSError:
        break
    if not got:
        break
    out += got
    open("screen", "wb").write(out)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
frames = out.split(b"\033[H")[1:]
assert frames[0].startswith(b"\033[2J") and len(frames) >= 3, frames
assert all(f.endswith(b"\033[J") for f in frames)
assert all(f.count(b"\n") < 12 for f in frames[1:]), frames
PY
    screen=$!
    wait_for 10 lines_of $'\033\\[H' screen 3
    run -0 "$DSLAUNCH" down
    wait $screen
}
