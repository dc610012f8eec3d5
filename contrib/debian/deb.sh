#!/bin/sh
# deb.sh BUILD: makes BUILD/dslaunch_VERSION_ARCH.deb of what `make install` installs, and prints its
# name.  Version and maintainer are those of the changelog.
set -eu
umask 022
here=$(dirname "$0")
build=$(realpath "$1")
root=$build/deb/dslaunch
doc=$root/usr/share/doc/dslaunch
# What dsagent and dsworker hold copies of.
static="libuv1-dev libprotobuf-c-dev libxxhash-dev libyaml-dev libjansson-dev libssl-dev libopenblas-dev"

field() { dpkg-parsechangelog -l "$here/changelog" -S "$1"; }
version=$(field Version)
arch=$(dpkg --print-architecture)

rm -rf "$build/deb"
mkdir -p "$root/DEBIAN" "$build/deb/debian"
make -s install B="$build" DESTDIR="$root" PREFIX=/usr ZSHDIR=/usr/share/zsh/vendor-completions
[ "$("$root/usr/bin/dslaunch" --version)" = "dslaunch $version" ] || {
    echo "deb.sh: the changelog and the program are not of one version" >&2
    exit 1
}
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root"/usr/bin/*
gzip -9n "$root"/usr/share/man/man?/*
rm "$doc/LICENSE"
install -m 644 "$here/copyright" "$doc"
gzip -9nc "$here/changelog" >"$doc/changelog.gz"
for p in $static; do
    printf '==== %s\n' "$p"
    cat "/usr/share/doc/$p/copyright"
done | gzip -9n >"$doc/copyright.libraries.gz"
install -m 644 -D "$here/dslaunch.lintian-overrides" "$root/usr/share/lintian/overrides/dslaunch"

# dpkg-shlibdeps wants a source package around it.
printf 'Source: dslaunch\n\nPackage: dslaunch\nArchitecture: any\n' >"$build/deb/debian/control"
depends=$(cd "$build/deb" && dpkg-shlibdeps -O dslaunch/usr/bin/* | sed 's/^shlibs:Depends=//')
# shellcheck disable=SC2016,SC2086
built=$(dpkg-query -W -f '${source:Package} (= ${source:Version})\n' $static | sort -u | paste -sd,)
cat >"$root/DEBIAN/control" <<EOF
Package: dslaunch
Version: $version
Architecture: $arch
Maintainer: $(field Maintainer)
Section: science
Priority: optional
Depends: $depends
Built-Using: $built
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: launcher and trainer of language models
 dslaunch turns a list of machines into one training run that keeps going: it
 starts an agent on every node and one worker per core, watches them, names the
 culprit when something breaks, and goes on from the newest checkpoint.
 .
 The worker trains language models in data, pipeline and tensor parallel.
EOF
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
deb=$build/dslaunch_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$deb" >/dev/null
rm -rf "$build/deb"
echo "$deb"
