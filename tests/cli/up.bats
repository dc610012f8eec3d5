#!/usr/bin/env bats
# up, down, status and logs with workers that do no arithmetic.

bats_require_minimum_version 1.5.0
load job

setup() {
    job_setup
}

teardown() {
    job_teardown
}

@test "up runs a job to its end" {
    spec 20
    run -0 up
    [[ $output == *"generation 1 runs, 4 workers"* ]]
    [[ $output == *"step 20/20  loss 0.2381  norm 1.500  lr 3.00e-04"* ]]
    [[ $output == *"[rank 3 g1] rank 3 finished step 20"* ]]
    [[ $output == *"job completed at step 20/20"* ]]
    [ "$(wc -l <"$DSLAUNCH_HOME/job/metrics.jsonl")" = 20 ]
    for r in 0 1 2 3; do
        [ "$(grep -c finished "$DSLAUNCH_HOME/job/logs/g1/$r.log")" = 20 ]
    done
}

@test "plain progress comes every log_every steps" {
    spec 20
    run -0 up
    [ "$(grep -c '^step ' <<<"$output")" = 5 ] # 1 5 10 15 20
}

@test "a completed job says so; more steps go on; --fresh begins anew and moves, not deletes" {
    spec 5
    run -0 up
    mkdir -p "$SPACE/ckpt/step-00000005-g1" # the fake worker writes none
    run -0 up
    [[ $output == *"job is completed: step 5 of 5"* ]]
    spec 8
    run -0 up
    [[ $output == *"resumed from step 5"* ]]
    [[ $output == *"generation 2 runs"* ]]
    rm "$FAKE_DIR/step"
    run -0 up --fresh
    [[ $output == *"generation 1 runs"* ]]
    [ -d "$SPACE/ckpt.old-1/step-00000005-g1" ]
    [ ! -e "$SPACE/ckpt/step-00000005-g1" ]
    [ -e "$DSLAUNCH_HOME/job.old-1/journal.jsonl" ]
}

@test "-d returns once it runs; status tells; down finishes the step; down again is fine" {
    spec 100000
    run -0 up -d
    is "s['live'] and s['state'] == 'running' and s['generation'] == 1"
    wait_for 5 is "s['step'] > 2 and len(s['ranks']) == 4 and all(r['pid'] for r in s['ranks'])"
    is "[n['state'] for n in s['nodes']] == ['up', 'up'] and [n['ranks'] for n in s['nodes']] == [[0, 1], [2, 3]]"
    run -0 "$DSLAUNCH" status
    [[ $output == *"job: running, generation 1, step "* ]]
    run -0 "$DSLAUNCH" down
    [[ $output == *"job stopped at step"* ]]
    nothing_left
    is "not s['live'] and s['state'] == 'ended' and s['outcome'] == 'stopped' and s['exit_code'] == 0"
    run -0 "$DSLAUNCH" down
    [[ $output == *"job is not running"* ]]
}

@test "a stopped job resumes" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    run -0 "$DSLAUNCH" down
    step=$(cat "$FAKE_DIR/step")
    spec $((step + 5))
    run -0 up
    [[ $output == *"resumed from step $step"* ]]
    [[ $output == *"completed at step $((step + 5))"* ]]
}

@test "down --now ends ranks that do not listen" {
    spec 100000
    FAKE_DEAF=1 run -0 up -d
    run -0 "$DSLAUNCH" down --now job
    [[ $output == *"job killed at step"* ]]
    nothing_left
}

@test "down on ranks that do not listen ends after the grace" {
    GRACE=1s spec 100000
    FAKE_DEAF=1 run -0 up -d
    run -0 "$DSLAUNCH" down
    nothing_left
}

@test "down without any job" {
    run -0 "$DSLAUNCH" down
    [[ $output == *"there is no job yet"* ]]
    run -0 "$DSLAUNCH" down nosuch
    [[ $output == *"there is no job 'nosuch'"* ]]
    run -2 "$DSLAUNCH" status
    run -2 "$DSLAUNCH" logs nosuch
}

@test "up on a live job re-attaches; with another spec it is refused with the keys; so is --fresh" {
    spec 100000
    run -0 up -d
    run -0 up -d
    is "s['generation'] == 1"
    run -2 up -d --set train.batch=8 --set monitor.log_every=7
    [[ $output == *"train.batch: was 4, is 8"* ]]
    [[ $output == *"monitor.log_every: was 5, is 7"* ]]
    run -2 up -d --fresh
    is "s['live'] and s['generation'] == 1"
    run -0 "$DSLAUNCH" down
}

@test "a resume with another batch is refused unless --fresh" {
    spec 5
    run -0 up
    spec 9
    run -2 up --set train.batch=8
    [[ $output == *"train.batch: was 4, is 8"* ]]
    [[ $output == *"--fresh"* ]]
    rm "$FAKE_DIR/step"
    run -0 up --fresh --set train.batch=8
}

@test "a bad spec starts nothing" {
    spec 5
    run -2 up --set train.batch=3
    [ ! -e "$DSLAUNCH_HOME/job" ]
    run -2 up --nosuch
    run -2 "$DSLAUNCH" up
}

@test "too many ranks for the slots: exit 2 and no process" {
    spec 5 "{host: localhost, slots: 2}"
    run -2 up
    nothing_left
}

@test "an agent that cannot start: exit 3" {
    spec 5
    DSLAUNCH_AGENT=/nonexistent/dsagent run -3 up
    [[ $output == *"/nonexistent/dsagent"* ]]
}

@test "the first Ctrl-C saves and exits 0, the second stops now with 130" {
    spec 100000
    "$DSLAUNCH" up spec.yaml >out 2>&1 &
    pid=$!
    wait_for 10 is "s['step'] > 2"
    kill -INT $pid
    wait $pid
    grep -q "stopping after this step" out
    grep -q "job stopped at step" out
    FAKE_DEAF=1 "$DSLAUNCH" up spec.yaml >out 2>&1 &
    pid=$!
    wait_for 10 is "s['state'] == 'running'"
    kill -INT $pid
    wait_for 5 grep -q "stopping after this step" out
    kill -INT $pid
    rc=0
    wait $pid || rc=$?
    [ $rc = 130 ]
}

@test "a lost terminal detaches, the job goes on" {
    spec 100000
    "$DSLAUNCH" up spec.yaml >out 2>&1 &
    pid=$!
    wait_for 10 is "s['step'] > 2"
    kill -HUP $pid
    wait $pid
    is "s['live'] and s['state'] == 'running'"
    step=$(field "s['step']")
    wait_for 5 is "s['step'] > $step"
    run -0 "$DSLAUNCH" down
}

@test "a reader of our output that goes away does not end the job" {
    spec 100000
    up | head -n 3
    wait_for 5 is "s['live']"
    run -0 "$DSLAUNCH" down
}

@test "closed standard streams, and a full disk behind them" {
    spec 100000
    up -d <&- >&- 2>&-
    "$DSLAUNCH" status >&-
    rc=0
    "$DSLAUNCH" status >/dev/full || rc=$?
    [ $rc = 1 ]
    "$DSLAUNCH" down >/dev/full # it ends nevertheless, and is waited for
    is "s['state'] == 'ended'"
}

@test "SIGTERM to the controller stops gracefully" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    kill -TERM "$(field "s['controller']['pid']")"
    wait_for 10 is "not s['live'] and s['outcome'] == 'stopped'"
}

@test "a spec that cannot be read: one line, and nothing starts" {
    for command in up plan; do
        run -2 "$DSLAUNCH" "$command" "$SPACE/nosuch.yaml"
        [ "$output" = "dslaunch $command: $SPACE/nosuch.yaml: No such file or directory" ]
    done
    echo "nam: x" >"$SPACE/spec.yaml"
    for command in up plan; do
        run -2 "$DSLAUNCH" "$command" "$SPACE/spec.yaml"
        [[ ${lines[0]} == "$SPACE/spec.yaml:1:1: nam: "* ]]
        [[ ${lines[-1]} == "dslaunch $command: $SPACE/spec.yaml: "*" errors" ]]
    done
    nothing_left
}

@test "logs: all, one rank, one node, tail, and follow" {
    spec 12
    run -0 up
    run -0 "$DSLAUNCH" logs
    [ "${#lines[@]}" = 48 ]
    run -0 "$DSLAUNCH" logs --rank 2 --tail 3
    [ "${#lines[@]}" = 3 ]
    [ "${lines[2]}" = "[rank 2 g1] rank 2 finished step 12" ]
    run -0 "$DSLAUNCH" logs job --node 1
    [ "${#lines[@]}" = 24 ]
    [[ $output != *"[rank 0"* ]]
    run -2 "$DSLAUNCH" logs --rank 4
    run -2 "$DSLAUNCH" logs --rank x
    : >"$DSLAUNCH_HOME/job/logs/g1/3.log"
    run -0 --separate-stderr "$DSLAUNCH" logs --rank 3
    [ -z "$output" ]
    [ "$stderr" = "nothing was printed in generation 1" ]
    spec 60
    run -0 up -d
    run -0 "$DSLAUNCH" logs -f --rank 1
    [[ $output == *"[rank 1 g2] rank 1 finished step 60" ]]
    [[ $output != *"[rank 0"* ]]
}

@test "a flood of output is complete, in order, and stops nobody" {
    spec 5
    FAKE_FLOOD=20000 run -0 up
    for r in 0 3; do
        python3 - "$DSLAUNCH_HOME/job/logs/g1/$r.log" $r <<'PY'
import sys
lines = [l for l in open(sys.argv[1]) if " line " in l]
want = [f"rank {sys.argv[2]} step {s} line {i}\n" for s in range(1, 6) for i in range(20000)]
assert lines == want, (len(lines), len(want))
PY
    done
}

@test "the newest or only live job is meant when none is named" {
    spec 3
    run -0 up --set name=first
    rm "$FAKE_DIR/step"
    run -0 up --set name=second
    run -0 "$DSLAUNCH" status
    [[ $output == second:* ]]
    rm "$FAKE_DIR/step"
    run -0 up -d --set name=third --set train.steps=100000
    run -0 "$DSLAUNCH" status
    [[ $output == third:* ]]
    run -0 "$DSLAUNCH" down
}
