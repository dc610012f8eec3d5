# shellcheck shell=bash
# job.bash: what the tests of up, down, status and logs share.  Each test has its own state and
# run-time folder, a worker without arithmetic, and leaves nothing.

job_setup() {
    DSLAUNCH=${DSLAUNCH_BUILD:-$BATS_TEST_DIRNAME/../../build}/dslaunch
    # Short: a socket's path has 108 bytes at most.
    SPACE=$(mktemp -d /tmp/dsl.XXXXXX)
    export DSLAUNCH_HOME=$SPACE/home XDG_RUNTIME_DIR=$SPACE/run FAKE_DIR=$SPACE/fake NO_COLOR=1
    export DSLAUNCH_WORKER=$BATS_TEST_DIRNAME/fake_worker.py PYTHONDONTWRITEBYTECODE=1
    mkdir -m 700 "$XDG_RUNTIME_DIR" "$FAKE_DIR" "$SPACE/ckpt"
    echo text >"$SPACE/text"
    cd "$SPACE" || return
}

# spec [STEPS [NODES]]: 4 ranks
spec() {
    cat >"$SPACE/spec.yaml" <<YAML
name: job
cluster:
  nodes: [${2:-{host: localhost, slots: 2\}, {host: localhost, slots: 2\}}]
  timeouts: {orphan: ${ORPHAN:-20s}, suspect: 1s, lost: ${LOST:-5s}, connect: ${CONNECT:-10s}}
job: {env: ["FAKE_*", "PYTHON*", XDG_RUNTIME_DIR], grace: ${GRACE:-5s}}
model: {arch: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn: 48, vocab: 259}
parallel: {data: 4}
train: {steps: ${1:-20}, batch: 4, micro_batch: 1, seq_len: 32, lr: {peak: 1e-3, min: 1e-4, warmup: 2}}
data: {files: [$SPACE/text]}
checkpoint: {dir: $SPACE/ckpt, every: 100}
restart: {max: ${MAX:-3}, window: 1h, backoff: 100ms, hang_timeout: ${HANG:-10s}}
monitor: {log_every: 5}
YAML
}

up() {
    "$DSLAUNCH" up "$SPACE/spec.yaml" "$@"
}

# wait_for SECONDS COMMAND...: polls until the command succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS > end)); then
            echo "not in time: $*"
            return 1
        fi
        read -rt 0.05 <> <(:) || true
    done
}

# field EXPRESSION: of `status --json`, as Python sees it in `s`.
field() {
    "$DSLAUNCH" status job --json | python3 -c "import json,sys; s=json.load(sys.stdin); print($1)"
}

is() { # is EXPRESSION: true of the status document
    [ "$(field "$1")" = True ]
}

# Processes that carry this test's run-time folder in their environment; zombies have none.
ours() {
    local p args
    for p in /proc/[0-9]*; do
        grep -qzx "XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR" "$p/environ" 2>/dev/null || continue
        args=$(tr '\0' ' ' <"$p/cmdline") 2>/dev/null || continue
        case $args in
        dsagent\ * | */dsagent\ * | dslaunch\ * | */dslaunch\ * | */python3\ */fake_worker.py*)
            echo "${p#/proc/} $args"
            ;;
        esac
    done
}

pids_of() { # pids_of PATTERN
    ours | grep -E "$1" | cut -d' ' -f1
}

nothing_left() {
    [ -z "$(ours)" ] && [ -z "$(find "$XDG_RUNTIME_DIR" -mindepth 1)" ]
}

job_teardown() {
    local rest=0
    if ! wait_for 10 nothing_left; then
        rest=1
        echo "left behind:"
        ours
        find "$XDG_RUNTIME_DIR" -mindepth 1
        pids_of . | while read -r p; do kill -9 "$p"; done
    fi
    if [ "$rest" != 0 ] || [ -z "$BATS_TEST_COMPLETED" ]; then
        cat "$DSLAUNCH_HOME"/*/controller.log 2>/dev/null
    fi
    if grep -E 'Sanitizer|runtime error' "$DSLAUNCH_HOME"/*/controller.log 2>/dev/null; then
        rest=1
    fi
    cd /
    rm -rf "$SPACE"
    return "$rest"
}
