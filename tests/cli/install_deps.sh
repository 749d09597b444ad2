#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install_deps.sh - tools/deps.sh asks before it installs through sudo, and
# installs nothing without a terminal to ask on. apt-get and sudo are replaced
# by scripts that record their arguments.
#
#   install_deps.sh SOURCE
set -eu
deps=$1/tools/deps.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
log=$work/log
fail() {
    echo "$1"
    cat "$log" "$work/out"
    exit 1
}

stand_in() { # NAME SCRIPT
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
stand_in pkg-config 'exit 1'
stand_in apt-get "echo \"apt-get \$*\" >>'$log'"
stand_in sudo "echo sudo >>'$log'; exec \"\$@\""
user() { # UID
    stand_in id "echo $1"
}
PATH=$work/bin:$PATH
export PATH

# STATUS, CI, the typed answer ("none": there is no terminal).
run() {
    : >"$log"
    status=0
    if [ "$3" = none ]; then
        CI=$2 sh "$deps" </dev/null >"$work/out" 2>&1 || status=$?
    else
        echo "$3" | CI=$2 script -qec "sh '$deps'" /dev/null \
            >"$work/out" 2>&1 || status=$?
    fi
    [ "$status" = "$1" ] || fail "status $status, not $1, with CI=$2 and '$3'"
}
installs() {
    grep -q 'apt-get .*install .*libjansson-dev' "$log" ||
        fail "nothing was installed"
}
installs_nothing() {
    [ ! -s "$log" ] || fail "something was installed"
    grep -q 'apt-get.* install .*libjansson-dev' "$work/out" ||
        fail "the command is not named"
}

user 1000
run 1 '' none
installs_nothing
run 0 true none
installs
grep -q sudo "$log" || fail "not through sudo"
if command -v script >/dev/null; then
    for answer in n '' what; do
        run 1 '' "$answer"
        installs_nothing
    done
    for answer in y yes; do
        run 0 '' "$answer"
        installs
    done
fi
user 0
run 0 '' none
installs
! grep -q sudo "$log" || fail "root needs no sudo"
