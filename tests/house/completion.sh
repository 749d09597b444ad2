#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# completion.sh - what bash completes for bauta, and that the program takes it.
#
#   completion.sh BAUTA COMPLETION
set -eu
bauta=$1
# shellcheck source=/dev/null
source "$2"

fail() {
    echo "$1"
    exit 1
}
# completes WORD...: what the last word may become, in one line; the program
# before them.
completes() {
    COMP_WORDS=("$bauta" "$@")
    COMP_CWORD=$#
    _bauta
    echo "${COMPREPLY[*]}"
}
has() { # CANDIDATE WORD...
    want=$1
    shift
    case " $(completes "$@") " in
    *" $want "*) ;;
    *) fail "'$want' is not among: $(completes "$@")" ;;
    esac
}

complete -p bauta >/dev/null || fail "nothing completes bauta"
[ "$(completes gen)" = generate ] || fail "gen: $(completes gen)"
has inspect ""
has --version --
has train tokenizer ""
has --min-count tokenizer train --m
has --perplexity score --p
has --stride score --perplexity --s
has --top-k generate model --top
has -n generate model -
has int8 generate model --weights ""
[ "$(completes embed model --pooling l)" = last ] || fail "--pooling l"
[ "$(completes lab --fast lay)" = layers ] || fail "lab --fast lay"
[ -z "$(completes lab all --out "")" ] || fail "--out is a folder"
has gpt2-tiny train --preset gpt2
[ -z "$(completes fill "")" ] || fail "a folder is not for us to complete"

# Every option of a verb is offered, and every one that is offered is known:
# the program never says that there is none. What nobody knows, behind it and
# behind a value that it may take, keeps the verb from working.
count=0
for verb in $(_bauta_verbs "$bauta"); do
    arguments=("$verb")
    [ "$verb" != tokenizer ] || arguments+=(train)
    options=$(completes "${arguments[@]}" --)
    [ -n "$options" ] || fail "$verb has no options"
    for option in $options; do
        said=$("$bauta" "${arguments[@]}" "$option" --nothing --nothing \
            2>&1 </dev/null) || :
        case $said in
        *"there is no option '$option'"*) fail "$verb: $said" ;;
        esac
        for value in $(_bauta_values "$bauta" "$verb" "$option"); do
            said=$("$bauta" "${arguments[@]}" "$option" "$value" --nothing \
                2>&1 </dev/null) || :
            case $said in
            *"'--nothing'"*) ;;
            *) fail "$verb $option $value: $said" ;;
            esac
        done
        count=$((count + 1))
    done
done
echo "$count options"
[ "$count" -gt 100 ]
