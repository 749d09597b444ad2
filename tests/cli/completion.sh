#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# completion.sh - the completions of bash, and that the program accepts them;
# the options of --help are those of the tables; and the completions of zsh and
# fish are generated from them.
#
#   completion.sh BAUTA SOURCE
set -eu
bauta=$1
completions=$2/completions
# shellcheck source=/dev/null
source "$completions/bauta"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "$1"
    exit 1
}
# completes WORD...: the completions of the last word, in one line.
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
has generate help ""
has int8 generate model --weights ""
has cuda generate model --device ""
has bfloat16 train --dtype ""
[ "$(completes embed model --pooling l)" = last ] || fail "--pooling l"
[ "$(completes lab --fast lay)" = layers ] || fail "lab --fast lay"
[ -z "$(completes lab all --out "")" ] || fail "--out is a folder"
has gpt2-tiny train --preset gpt2
[ -z "$(completes fill "")" ] || fail "a folder is not for us to complete"

# Every option of a verb is offered, and the program knows every option that is
# offered. An unknown option after it, and after a value that it may take, keeps
# the verb from working.
count=0
for verb in $(_bauta_verbs "$bauta"); do
    arguments=("$verb")
    [ "$verb" != tokenizer ] || arguments+=(train)
    options=$(completes "${arguments[@]}" --)
    [ -n "$options" ] || fail "$verb has no options"
    "$bauta" "${arguments[@]}" --help | sed '/^examples$/q' >"$work/help"
    for option in $options; do
        grep -qE -- "$option([^a-z-]|\$)" "$work/help" ||
            fail "$verb --help does not have $option"
        said=$("$bauta" "${arguments[@]}" "$option" --nothing --nothing \
            2>&1 </dev/null) || :
        case $said in
        *"there is no option '$option'"*) fail "$verb: $said" ;;
        esac
        for value in $(_bauta_values "$option" "$bauta" "${arguments[@]}"); do
            said=$("$bauta" "${arguments[@]}" "$option" "$value" --nothing \
                2>&1 </dev/null) || :
            case $said in
            *"'--nothing'"*) ;;
            *) fail "$verb $option $value: $said" ;;
            esac
        done
        # The same in the other shells.
        grep -qF -- "__bauta_verb_is $verb' -l ${option#--}" \
            "$completions/bauta.fish" || fail "fish: $verb has no $option"
        awk -v verb="$verb" '$0 == "    " verb ")" { on = 1 }
            /^        ;;$/ { on = 0 } on' "$completions/_bauta" |
            grep -qE -- "'$option=?(\[|:|')" || fail "zsh: $verb has no $option"
        count=$((count + 1))
    done
    # The options of --help are in the table.
    grep -oE -- '--[a-z][a-z0-9-]*' "$work/help" | while read -r option; do
        case " $options " in
        *" $option "*) ;;
        *) fail "$verb --help has $option, and there is none" ;;
        esac
    done
done
echo "$count options"
[ "$count" -gt 100 ]

"$2/tools/make-completions.sh" "$bauta" "$work/made"
for file in _bauta bauta.fish; do
    diff "$completions/$file" "$work/made/$file" ||
        fail "completions/$file is not of this program; 'make man' writes it anew"
done
if command -v zsh >/dev/null; then
    zsh -n "$completions/_bauta" || fail "zsh does not understand _bauta"
fi
if command -v fish >/dev/null; then
    fish -n "$completions/bauta.fish" || fail "fish does not understand it"
fi
