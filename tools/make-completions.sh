#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make-completions.sh - completions for zsh and fish, from the program's tables
# of options; that of bash asks the program itself.
#
#   make-completions.sh BAUTA FOLDER
#
# 'bauta VERB --list-options' prints a line for each option: "--json" is a flag,
# "--seed=" takes a value, "--weights=float32 int8" one of these. What an option
# is for stands in --help. A test compares completions/ with what comes out
# here.
set -eu
bauta=$1
folder=$2
mkdir -p "$folder"
LC_ALL=C
export LC_ALL

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bauta" --help >"$work/help"
awk '/^$/ { on = 0 } on { print $1 } /^verbs$/ { on = 1 }' "$work/help" \
    >"$work/verbs"

# The command of a verb: the tokenizer has one below it.
command_of() {
    case $1 in
    tokenizer) echo tokenizer train ;;
    *) echo "$1" ;;
    esac
}
# The experiments of lab.
labs() {
    "$bauta" lab --help |
        awk '/^$/ { on = 0 } on { print $1 } /^experiments$/ { on = 1 }' |
        tr '\n' ' ' | sed 's/ $//'
}

# options VERB: lines of name, "=" or nothing, choices and description, with
# tabs between them.
options() {
    # shellcheck disable=SC2046 # two words are two arguments
    "$bauta" $(command_of "$1") --list-options >"$work/list"
    # shellcheck disable=SC2046
    "$bauta" $(command_of "$1") --help |
        awk -v list="$work/list" '
        # "  -n, --name VALUE   what it is", up to the end of the line
        /^examples$/ { exit }
        /^  (-[a-z], )?--[a-z]/ {
            at = match(substr($0, 3), /  +[^ ]/)
            text = at ? substr($0, 2 + at + RLENGTH - 1) : ""
            name = $1 ~ /^-[a-z],$/ ? $2 : $1
            if (text !~ /^--[a-z0-9-]+ [A-Z]/) # another option
                about[name] = text
        }
        END {
            while ((getline line < list) > 0) {
                name = line
                sub(/=.*/, "", name)
                choices = line
                takes = sub(/^[^=]*=/, "", choices) ? "=" : ""
                if (!takes)
                    choices = ""
                printf "%s\t%s\t%s\t%s\n", name, takes, choices, about[name]
            }
        }'
}

summary_of() { # VERB
    sed -n "s/^  $1  *\(.*\)/\1/p" "$work/help" | head -n 1
}
quoted() { # TEXT: between single quotes, for both shells
    printf '%s' "$1" | sed "s/'/'\\\\''/g"
}

{
    cat <<'END'
#compdef bauta
# SPDX-License-Identifier: Apache-2.0
# Made by tools/make-completions.sh; do not edit.

_bauta() {
    local -a verbs
    verbs=(
END
    while read -r verb; do
        echo "        '$verb:$(quoted "$(summary_of "$verb")")'"
    done <"$work/verbs"
    cat <<'END'
    )
    if ((CURRENT == 2)) || { ((CURRENT == 3)) && [[ $words[2] == help ]]; }; then
        _describe -t verbs verb verbs
        return
    fi
    local verb=$words[2]
    shift words
    ((CURRENT--))
    case $verb in
END
    while read -r verb; do
        echo "    $verb)"
        echo "        _arguments \\"
        options "$verb" | awk -F '\t' '{
            gsub(/[][\\]/, "\\\\&", $4)
            gsub(/\047/, "\047\\\\\047\047", $4)
            value = $3 ? ":value:(" $3 ")" : $2 ? ":value:_files" : ""
            about = $4 ? "[" $4 "]" : ""
            printf "            \047%s%s%s%s\047 \\\n", $1, $2, about, value
        }'
        case $verb in
        lab) echo "            '*:name:($(labs))'" ;;
        tokenizer)
            echo "            '1:name:(train)' \\"
            echo "            '*:file:_files'"
            ;;
        *) echo "            '*:file:_files'" ;;
        esac
        echo "        ;;"
    done <"$work/verbs"
    cat <<'END'
    esac
}

_bauta "$@"
END
} >"$folder/_bauta"

{
    echo "# SPDX-License-Identifier: Apache-2.0"
    cat <<'END'
# Made by tools/make-completions.sh; do not edit.

function __bauta_verb_is
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]
end

END
    while read -r verb; do
        echo "complete -c bauta -n __fish_use_subcommand -f -a $verb" \
            "-d '$(quoted "$(summary_of "$verb")")'"
    done <"$work/verbs"
    echo "complete -c bauta -n '__bauta_verb_is help' -f -a" \
        "'$(tr '\n' ' ' <"$work/verbs" | sed 's/ $//')'"
    while read -r verb; do
        echo
        on="complete -c bauta -n '__bauta_verb_is $verb'"
        case $verb in
        lab) echo "$on -f -a '$(labs)'" ;;
        tokenizer)
            echo "${on%\'}; and test (count (commandline -opc)) -eq 2'" \
                "-f -a train"
            ;;
        esac
        options "$verb" | awk -F '\t' -v on="$on" '{
            gsub(/\047/, "\047\\\\\047\047", $4)
            value = $3 ? " -x -a \047" $3 "\047" : $2 ? " -r" : ""
            about = $4 ? " -d \047" $4 "\047" : ""
            printf "%s -l %s%s%s\n", on, substr($1, 3), value, about
        }'
    done <"$work/verbs"
} >"$folder/bauta.fish"
