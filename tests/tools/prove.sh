#!/usr/bin/env bash
# prove.sh BUILD TEST...: runs every test (a program that prints TAP, or a .bats file), two at a time,
# and ends with one plain count.  Skips are counted.
set -u
export DSLAUNCH_BUILD
DSLAUNCH_BUILD=$(realpath "$1")
export DSLAUNCH_PLANT_BUILD=${DSLAUNCH_PLANT_BUILD:-$DSLAUNCH_BUILD/plant}
export CMOCKA_MESSAGE_OUTPUT=TAP PYTHONDONTWRITEBYTECODE=1
shift
run=$(dirname "$0")/tap-run.sh
export TAP_OUT
TAP_OUT=$(mktemp -d)
trap 'rm -rf "$TAP_OUT"' EXIT
prove --jobs "${PROVE_JOBS:-2}" --merge --timer --comments --exec "$run" "$@" 2>&1 |
    grep -vE '^(All tests successful|Result:|Files=)' | grep -vE '^# (not )?ok( - .*)?$'
status=${PIPESTATUS[0]}
count() { cat "$TAP_OUT"/* | grep -cE "$1"; }
skipped=$(count '^ok [0-9]+.*# [Ss][Kk][Ii][Pp]')
failed=$(count '^not ok ')
passed=$(($(count '^ok [0-9]+') - skipped))
# A program that crashed or ran too long fails without a line of its own.
[ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
