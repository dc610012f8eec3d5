#!/usr/bin/env bats
# What is made from the tables: committed as made, valid, and of use.

bats_require_minimum_version 1.5.0

setup() {
    ROOT=$(realpath "$BATS_TEST_DIRNAME/../..")
    DSLAUNCH=$(realpath "${DSLAUNCH_BUILD:-$ROOT/build}")/dslaunch
    OUT=$(mktemp -d)
    export DSLAUNCH_HOME=$OUT/home
}

teardown() {
    rm -rf "$OUT"
}

@test "the committed documents are those of the tables" {
    "$DSLAUNCH" doc "$OUT"
    cd "$OUT"
    n=0
    while read -r f; do
        n=$((n + 1))
        diff -u "$ROOT/$f" "$f" || { echo "run \`make docs\`"; false; }
    done < <(find . -type f)
    [ "$n" = 6 ]
}

@test "the schema and the parser are of one mind" {
    python3 "$ROOT/tests/tools/schema.py" "$DSLAUNCH"
}

@test "configs name the schema" {
    for f in "$ROOT"/configs/*.yaml; do
        to=$(sed -n '1s/^# yaml-language-server: \$schema=//p' "$f")
        [ -f "$ROOT/configs/$to" ]
    done
}

@test "man pages are clean roff and explain every option" {
    for f in dslaunch.1 dslaunch.yaml.5; do
        run -0 --separate-stderr groff -man -ww -Tutf8 "$ROOT/docs/man/$f"
        [ -z "$stderr" ]
        [[ $output != *"made by"* ]]
    done
    # An option whose paragraph is empty would be followed by the next one's tag.
    run -1 bash -c "grep -A1 '^.fB.-' '$ROOT/docs/man/dslaunch.1' | grep '^\$'"
}

# words WORD...: what bash offers for the last one
words() {
    COMP_WORDS=(dslaunch "$@") COMP_CWORD=$#
    _dslaunch dslaunch "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
    echo "${COMPREPLY[@]}"
}

@test "bash completes commands, options, jobs, keys and specs" {
    # shellcheck source=contrib/completion/dslaunch.bash
    shellcheck "$ROOT/contrib/completion/dslaunch.bash"
    source "$ROOT/contrib/completion/dslaunch.bash"
    mkdir -p "$OUT/home/first" "$OUT/home/second" "$OUT/home/first.old-1"
    touch "$OUT/a.yaml" "$OUT/b.txt"
    [ "$(words pl)" = plan ]
    [ "$(words status '')" = "first second" ]
    [ "$(words logs --ra)" = --rank ]
    [ "$(words logs --rank '')" = "" ]
    [ "$(words up --set train.lr.pe)" = train.lr.peak= ]
    [ "$(words up "$OUT/")" = "$OUT/home $OUT/a.yaml" ]
    [ "$(words controller '')" = "" ]
}

@test "zsh takes its completion" {
    zsh -fn "$ROOT/contrib/completion/_dslaunch"
}

@test "make install: all is there, and works from there" {
    unset MAKEFLAGS MFLAGS MAKELEVEL
    make -s -C "$ROOT" install B="$(dirname "$DSLAUNCH")" DESTDIR="$OUT" PREFIX=/opt
    cd "$OUT/opt"
    [ "$(find . -type f -printf '%m %P\n' | grep -v /examples/ | sort)" = "\
644 share/bash-completion/completions/dslaunch
644 share/doc/dslaunch/LICENSE
644 share/doc/dslaunch/spec.md
644 share/doc/dslaunch/spec.schema.json
644 share/man/man1/dslaunch.1
644 share/man/man5/dslaunch.yaml.5
644 share/zsh/site-functions/_dslaunch
755 bin/dsagent
755 bin/dslaunch
755 bin/dsworker" ]
    cd share/doc/dslaunch/examples
    for f in "$ROOT"/configs/*.yaml; do
        f=${f##*/}
        [ -f "$(sed -n '1s/^# yaml-language-server: \$schema=//p' "$f")" ]
        "$OUT/opt/bin/dslaunch" plan "$f" >/dev/null
    done
}
