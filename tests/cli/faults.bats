#!/usr/bin/env bats
# What breaks, and what follows: restarts, budget, hangs, a dead controller, agents without one.

bats_require_minimum_version 1.5.0
load job

setup() {
    job_setup
}

teardown() {
    job_teardown
}

failure() { # failure EXPRESSION of failure.json
    python3 -c "import json; f=json.load(open('$DSLAUNCH_HOME/job/failure.json')); print($1)"
}

@test "a rank that exits is restarted from where it was, and reported" {
    spec 20
    FAKE_MODE=exit-7:2:5:1 run -0 up
    [[ $output == *"generation 1 failed: rank 2 on "*"exited with code 7"* ]]
    [[ $output == *"it said          rank 2 was told to fail in step 5"* ]]
    [[ $output == *"| rank 2 was told to fail in step 5"* ]]
    [[ $output == *"next             generation 2, restarts left: 2"* ]]
    [[ $output == *"resumed from step "* ]]
    [[ $output == *"completed at step 20/20"*"restarts: 1"* ]]
    [ "$(failure "(f['rank'], f['exit_code'], f['node'], f['generation'], f['restarts'])")" = "(2, 7, 1, 1, True)" ]
    [ "$(failure "f['log_tail'][-1]")" = "rank 2 was told to fail in step 5" ]
    is "s['restarts'] == 1 and s['generation'] == 2"
}

@test "a signal is named, victims are told from the culprit" {
    spec 20
    FAKE_MODE=signal-9:1:5:1 run -0 up
    [[ $output == *"rank 1 on "*"was killed by signal 9 (SIGKILL)"* ]]
    rm "$FAKE_DIR/step"
    FAKE_MODE=victims:3:5:1 run -0 up --fresh
    [[ $output == *"generation 1 failed: rank 3 on "*"exited with code 1"* ]]
    [ "$(failure "f['rank']")" = 3 ]
}

@test "a job that always crashes ends within its budget, exit 1" {
    MAX=2 spec 20
    FAKE_MODE="exit-1:0:1:*" run -1 up
    [[ $output == *"next             the job ends"* ]]
    [[ $output == *"job failed at step 0/20"*"restarts: 2"* ]]
    is "s['outcome'] == 'failed' and s['exit_code'] == 1 and s['generation'] == 3 and s['restarts'] == 2"
    [ "$(failure "f['restarts']")" = False ]
    spec 20
    run -0 up # and can be started again
}

@test "exit 93 asks for no restart" {
    spec 20
    FAKE_MODE="exit-93:0:3:*" run -1 up
    is "s['generation'] == 1"
}

@test "a rank that stands still is found and named" {
    HANG=1s spec 20
    FAKE_MODE=hang:1:4:1 run -0 up
    [[ $output == *"generation 1 failed: rank 1 on "*"made no progress for "* ]]
    [[ $output == *"completed at step 20/20"* ]]
    [ "$(failure "(f['cause'], f['rank'])")" = "('hang', 1)" ]
}

@test "a stopped process is a hang" {
    HANG=1s spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2 and all(r['pid'] for r in s['ranks'])"
    kill -STOP "$(field "s['ranks'][3]['pid']")"
    wait_for 10 is "s['generation'] == 2 and s['state'] == 'running'"
    [ "$(failure "(f['cause'], f['rank'])")" = "('hang', 3)" ]
    run -0 "$DSLAUNCH" down
}

@test "a rank that breaks the protocol is the culprit" {
    spec 20
    FAKE_MODE=refused:2:4:1 run -0 up
    [ "$(failure "f['rank']")" = 2 ]
}

@test "ranks that never meet: the start times out and is restarted" {
    HANG=1s MAX=1 spec 20
    FAKE_LATE_S=30 run -1 up
    [[ $output == *"did not start in time"* ]]
}

@test "kill -9 of an agent: its workers die, the job goes on with a new one" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    kill -9 "$(field "s['nodes'][1]['pid']")"
    wait_for 15 is "s['generation'] == 2 and s['state'] == 'running'"
    run -0 "$DSLAUNCH" down
}

@test "a stopped agent is lost, killed with its workers, and replaced; down leaves none either" {
    LOST=1500ms spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    kill -STOP "$(field "s['nodes'][1]['pid']")"
    wait_for 15 is "s['generation'] == 2 and s['state'] == 'running' and s['restarts'] == 1"
    [ "$(failure "(f['cause'], f['node'])")" = "('node-lost', 1)" ]
    kill -STOP "$(field "s['nodes'][0]['pid']")"
    run -0 "$DSLAUNCH" down --now
    nothing_left
}

@test "a stopped agent under a new controller: another takes its place" {
    CONNECT=2s spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    agent=$(field "s['nodes'][1]['pid']")
    kill -STOP "$agent"
    kill -9 "$(field "s['controller']['pid']")"
    run -0 up -d
    is "s['generation'] == 2 and s['state'] == 'running' and s['nodes'][1]['pid'] != $agent"
    run -0 "$DSLAUNCH" down
}

@test "a stopped controller is named, not called dead, and no command waits for it for ever" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    pid=$(field "s['controller']['pid']")
    kill -STOP "$pid"
    "$DSLAUNCH" down >down.out 2>&1 &
    down=$!
    run -0 "$DSLAUNCH" status
    [[ $output == *"job: silent, "*"its controller, process $pid, does not answer"* ]]
    rc=0
    wait $down || rc=$?
    [ $rc = 3 ]
    grep -q "the controller, process $pid, does not answer; should it stay so, .kill -9 $pid" down.out
    kill -9 "$pid"
    run -0 "$DSLAUNCH" down
    [[ $output == *"job stopped at step"* ]]
}

@test "a run-time folder that is cleared while the job runs is made again" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    rm -r "$XDG_RUNTIME_DIR/dslaunch"
    wait_for 5 is "s['live'] and s['state'] == 'running'"
    wait_for 5 test -S "$XDG_RUNTIME_DIR/dslaunch/job/agent-1.sock"
    kill -9 "$(field "s['controller']['pid']")"
    run -0 "$DSLAUNCH" down # finds the agents
    [[ $output == *"job stopped at step"* ]]
}

@test "kill -9 of every worker, keeper and agent in turn" {
    MAX=20 spec 100000
    run -0 up -d
    for what in 'fake_worker' 'dsagent exec' 'dsagent serve'; do
        wait_for 15 is "s['state'] == 'running'"
        generation=$(field "s['generation']")
        kill -9 "$(pids_of "$what" | head -n 1)"
        wait_for 20 is "s['generation'] > $generation and s['state'] == 'running'"
    done
    run -0 "$DSLAUNCH" down
}

@test "a dead controller: the workers go on, up takes them over, no step is lost" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    workers=$(pids_of fake_worker | sort)
    for _ in 1 2 3 4; do
        kill -9 "$(field "s['controller']['pid']")"
        wait_for 5 is "s['state'] == 'lost'"
        step=$(cat "$FAKE_DIR/step")
        further() { [ "$(cat "$FAKE_DIR/step")" -gt "$step" ]; }
        wait_for 5 further
        run -0 up -d
        is "s['generation'] == 1 and s['state'] == 'running' and s['restarts'] == 0"
    done
    [ "$(pids_of fake_worker | sort)" = "$workers" ]
    wait_for 5 is "s['step'] > $step + 3"
    run -0 "$DSLAUNCH" down
    python3 - "$DSLAUNCH_HOME/job/metrics.jsonl" <<'PY'
import json, sys
steps = [json.loads(l)["step"] for l in open(sys.argv[1])]
assert steps == list(range(1, len(steps) + 1)), steps
PY
    # logs have no gap and no double line
    [ "$(sed -n 's/.*step //p' "$DSLAUNCH_HOME/job/logs/g1/2.log" | sort -n | uniq | wc -l)" = "$(wc -l <"$DSLAUNCH_HOME/job/logs/g1/2.log")" ]
    [ "$(head -n 1 "$DSLAUNCH_HOME/job/logs/g1/2.log")" = "rank 2 finished step 1" ]
}

@test "up attached to a controller that dies says so; the budget is not refilled" {
    MAX=2 spec 100000
    FAKE_MODE=exit-1:0:3:1 "$DSLAUNCH" up spec.yaml >out 2>&1 &
    pid=$!
    wait_for 15 is "s['generation'] == 2 and s['step'] > 4"
    kill -9 "$(field "s['controller']['pid']")"
    rc=0
    wait $pid || rc=$?
    [ $rc = 3 ]
    grep -q "the controller was lost" out
    run -0 up -d
    is "s['generation'] == 2 and s['restarts'] == 1 and s['restarts_left'] == 1"
    run -2 up -d --set monitor.log_every=9
    run -0 "$DSLAUNCH" down
}

@test "a dead controller whose worker died meanwhile: the next generation, with one restart used" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2 and all(r['pid'] for r in s['ranks'])"
    victim=$(field "s['ranks'][1]['pid']")
    kill -9 "$(field "s['controller']['pid']")"
    kill -9 "$victim"
    run -0 up -d
    wait_for 15 is "s['generation'] == 2 and s['state'] == 'running' and s['restarts'] == 1"
    run -0 "$DSLAUNCH" down
}

@test "down after the controller died stops the agents, gracefully" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    kill -9 "$(field "s['controller']['pid']")"
    run -0 "$DSLAUNCH" down
    [[ $output == *"lost its controller"* ]]
    [[ $output == *"job stopped at step"* ]]
    nothing_left
    is "s['state'] == 'ended' and s['outcome'] == 'stopped'"
    is "s['step'] == $(cat "$FAKE_DIR/step")" # each rank finished its step
    grep -q 'stopping -> dismissing' "$DSLAUNCH_HOME/job/controller.log"
}

@test "down --now after the controller and an agent died" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    agent=$(field "s['nodes'][0]['pid']")
    kill -9 "$(field "s['controller']['pid']")" "$agent"
    run -0 "$DSLAUNCH" down --now
    nothing_left
    is "s['state'] == 'ended'"
}

@test "down when neither controller nor agents are left" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    kill -9 "$(field "s['nodes'][0]['pid']")" "$(field "s['nodes'][1]['pid']")" "$(field "s['controller']['pid']")"
    run -0 "$DSLAUNCH" down
    [[ $output == *"job stopped at step"* ]]
    [[ $output != *"failed"* ]]
    is "s['state'] == 'ended' and s['outcome'] == 'stopped' and s['exit_code'] == 0"
}

@test "agents without a controller save and leave after timeouts.orphan; up resumes" {
    ORPHAN=1s spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    kill -9 "$(field "s['controller']['pid']")"
    workers_gone() { [ -z "$(pids_of 'fake_worker|dsagent')" ]; }
    wait_for 20 workers_gone
    [ -z "$(find "$XDG_RUNTIME_DIR" -mindepth 1)" ] # not even what the controller had made
    step=$(cat "$FAKE_DIR/step")
    run -0 up -d
    wait_for 5 is "s['generation'] == 2 and s['step'] > $step"
    run -0 "$DSLAUNCH" down
}

@test "taking over from another run-time folder is refused: the workers would run twice" {
    spec 100000
    run -0 up -d
    wait_for 5 is "s['step'] > 2"
    kill -9 "$(field "s['controller']['pid']")"
    mkdir -m 700 "$SPACE/other"
    XDG_RUNTIME_DIR=$SPACE/other run -2 up -d
    [[ $output == *"the job runs in $XDG_RUNTIME_DIR/dslaunch/job"* ]]
    [ -z "$(find "$SPACE/other" -mindepth 1)" ]
    run -0 "$DSLAUNCH" down
    [[ $output == *"job stopped at step"* ]]
}
