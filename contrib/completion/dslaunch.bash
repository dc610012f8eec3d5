# shellcheck shell=bash disable=SC2207
# dslaunch.bash: completion, made by `make docs`.
_dslaunch_jobs() {
    local d root=${DSLAUNCH_HOME:-${XDG_STATE_HOME:-~/.local/state}/dslaunch}
    for d in "$root"/*/; do
        d=${d%/} d=${d##*/}
        [[ $d == *[*.]* ]] || echo "$d"
    done
}
_dslaunch() {
    local cur=$2 command=${COMP_WORDS[1]} before=$3 words='' operand=''
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W 'up down restart ps status logs plan schema --help --version' -- "$cur"))
        return
    fi
    case $command in
    up)
        operand='SPEC' words='-d --set --fresh'
        ;;
    down)
        operand='JOB' words='--now'
        ;;
    restart)
        operand='JOB' words=''
        ;;
    ps)
        operand='' words=''
        ;;
    status)
        operand='JOB' words='--json --watch'
        ;;
    logs)
        operand='JOB' words='-f --rank --node --tail'
        [[ $before != --rank ]] || return
        [[ $before != --node ]] || return
        [[ $before != --tail ]] || return
        ;;
    plan)
        operand='SPEC' words='--json --set'
        ;;
    schema)
        operand='' words=''
        ;;
    *) return ;;
    esac
    local keys='
name
cluster.bootstrap
cluster.nodes
cluster.slots
cluster.workdir
cluster.interface
cluster.setup
cluster.env
cluster.timeouts.connect
cluster.timeouts.suspect
cluster.timeouts.lost
cluster.timeouts.orphan
job.device
job.threads
job.env
job.grace
model.preset
model.arch
model.layers
model.hidden
model.heads
model.kv_heads
model.ffn
model.vocab
model.max_positions
model.tied
model.qkv_bias
model.rope_theta
model.norm_eps
parallel.data
parallel.tensor
parallel.pipeline
parallel.sequence
parallel.schedule
parallel.stages
train.steps
train.batch
train.micro_batch
train.seq_len
train.precision
train.clip
train.z_loss
train.seed
train.deterministic
train.optimizer.kind
train.optimizer.betas
train.optimizer.eps
train.optimizer.weight_decay
train.lr.peak
train.lr.min
train.lr.warmup
train.lr.schedule
train.lr.decay
train.lr.scale
train.lr.reference_batch
train.sample.tokens
train.sample.prompt
train.sample.temperature
data.kind
data.files
data.tokenizer
data.validation.files
data.validation.every
checkpoint.dir
checkpoint.every
checkpoint.keep
checkpoint.shared
restart.max
restart.window
restart.backoff
restart.hang_timeout
monitor.log_every'
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$words --help" -- "$cur"))
    elif [[ $before == --set ]]; then
        COMPREPLY=($(compgen -S = -W "$keys" -- "$cur"))
        compopt -o nospace 2>/dev/null
    elif [[ $operand == JOB ]]; then
        COMPREPLY=($(compgen -W "$(_dslaunch_jobs)" -- "$cur"))
    elif [[ $operand == SPEC ]]; then
        COMPREPLY=($(compgen -d -- "$cur") $(compgen -f -X '!*.y*ml' -- "$cur"))
        compopt -o filenames 2>/dev/null
    fi
}
complete -F _dslaunch dslaunch
