#!/usr/bin/env bash
# The package: lintian finds no error, and on a Debian of nothing but the base system and what the
# package asks for it installs, plans, trains five steps, shows its manual, and goes without a trace.
# As root (debootstrap and chroot).  TAP.
# shellcheck disable=SC2016 # quoted for the root, and for apt-get
set -u
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MFLAGS MAKELEVEL
BUILD=${DSLAUNCH_BUILD:-$PWD/build}
SPACE=$(mktemp -d)
R=$SPACE/root
n=0
trap 'rm -rf --one-file-system "$SPACE"' EXIT

ok() { # NAME COMMAND...: what it printed is shown if it fails
    local name=$1 out
    shift
    n=$((n + 1))
    if out=$("$@" 2>&1); then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        printf '%s\n' "$out" | tail -40 | sed 's/^/# /'
    fi
}

# In the clean root, with a /proc of its own; what runs there ends with the command.
inside() {
    timeout 300 unshare --mount --pid --fork --kill-child --mount-proc="$R/proc" \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 chroot "$R" sh -euc "$1"
}

# The mirror this machine installs from.
bootstrap() {
    local names mirror suite
    # "libc6 (>= 2.34), libuv1" as "libc6,libuv1"
    names=$(dpkg-deb -f "$DEB" Depends | sed 's/ *([^)]*)//g; s/, */,/g')
    read -r mirror suite < <(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' \
        'Created-By: Packages' 'Origin: Debian' 'Component: main') || return 1
    timeout 600 debootstrap --variant=minbase --include="$names" "$suite" "$R" "$mirror"
}

trains() {
    inside 'cp -r /usr/share/doc/dslaunch/examples /root/job
        cd /root/job
        dslaunch up local.yaml --set train.steps=5 --set train.lr.warmup=2 | tee out
        grep -q "completed at step 5/5" out
        grep -q "8 workers" out
        ls -d ckpt/local/step-00000005-g1
        dslaunch status local --json | grep -q "\"completed\""'
}

leaves_nothing() {
    inside 'dpkg -r dslaunch; dpkg -P dslaunch
        [ -z "$(find / -xdev -iname "*dslaunch*" -not -path "/root/*" -not -path "/proc/*")" ]'
}

echo 1..7
make -s deb B="$BUILD" >"$SPACE/deb" 2>"$SPACE/log"
DEB=$(tail -n 1 "$SPACE/deb")
ok "the package is built" test -f "$DEB"
ok "lintian finds no error" lintian --allow-root --fail-on error "$DEB"
ok "a base system with what the package depends on" bootstrap
cp "$DEB" "$R/tmp/dslaunch.deb"
ok "it installs there" inside 'dpkg -i /tmp/dslaunch.deb; rm /tmp/dslaunch.deb; dpkg --audit'
ok "dslaunch plan" inside 'dslaunch plan /usr/share/doc/dslaunch/examples/local.yaml'
ok "eight workers train five steps" trains
ok "removed, it leaves nothing" leaves_nothing
