# shellcheck shell=sh disable=SC2034,SC2154
# SPDX-License-Identifier: Apache-2.0
# server.sh - a server and requests to it, for tests that source common.sh next.
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY # the server is on this machine

start() { # MODEL OPTION...: sets `url` and `child`
    : >listening
    "$bauta" serve "$@" --port 0 --quiet >listening 2>stderr &
    child=$!
    url=
    tries=0
    while [ -z "$url" ]; do
        sleep 0.05
        tries=$((tries + 1))
        if [ "$tries" -gt 1200 ] || ! kill -0 "$child" 2>/dev/null; then
            fail "the server does not start"
        fi
        url=$(sed -n 's/^listening on //p' listening)
    done
}
stop() { # the server ends with status 0
    kill "$child"
    got=0
    wait "$child" || got=$?
    child=
    [ "$got" = 0 ] || fail "the server ended with status $got"
}
asks() { # STATUS PATH [CURL OPTION]...: the body is in `stdout`
    want=$1
    path=$2
    shift 2
    cases=$((cases + 1))
    got=$(curl -s -o stdout -w '%{http_code}' --max-time 60 "$@" "$url$path") ||
        :
    [ "$got" = "$want" ] || fail "$path $*: status $got, not $want"
}
posts() { # STATUS PATH BODY
    asks "$1" "$2" -H 'Content-Type: application/json' -d "$3"
}
errs() { # STATUS PATH BODY TEXT: an error in the form of the OpenAI API
    posts "$1" "$2" "$3"
    says stdout '{"error":{"message":"'
    says stdout '"type":"'
    says stdout '"param":'
    says stdout '"code":'
    says stdout "$4"
}
