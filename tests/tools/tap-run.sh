#!/usr/bin/env bash
# Runs one test, however it is written, so that it prints TAP and ends in time.
limit=${TEST_LIMIT:-900}
case $1 in
*.bats) exec timeout -k 10 "$limit" bats --tap "$1" ;;
*) exec timeout -k 10 "$limit" "$1" ;;
esac
