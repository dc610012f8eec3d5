#!/usr/bin/env bash
# Our scripts under shellcheck, and our sources under clang-format.  TAP.
cd "$(dirname "$0")/../.." || exit 1
echo 1..2
verdict() { # number, name, text of what is wrong
    if [ -z "$3" ]; then
        echo "ok $1 - $2"
    else
        echo "not ok $1 - $2"
        while IFS= read -r line; do echo "# $line"; done <<<"$3"
    fi
}
verdict 1 shellcheck "$(git ls-files | xargs grep -lE '^#!.*(bash|/sh)' | xargs shellcheck -x 2>&1)"
verdict 2 clang-format "$(git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror 2>&1 |
    grep error | head -20)"
