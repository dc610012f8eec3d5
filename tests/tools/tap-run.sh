#!/usr/bin/env bash
# Runs one test, however it is written, so that it prints TAP and ends in time; what it printed is
# kept in $TAP_OUT for the count.
set -o pipefail
limit=${TEST_LIMIT:-900}
case $1 in
*.bats) set -- bats --tap "$1" ;;
esac
timeout -k 10 "$limit" "$@" 2>&1 | tee "$TAP_OUT/$$"
