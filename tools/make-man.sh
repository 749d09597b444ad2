#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make-man.sh - the manual pages, from what the program says of itself.
#
#   make-man.sh BAUTA FOLDER
#
# Each verb's --help becomes a page: its first block the synopsis, the
# paragraphs the description, and each heading a section of options. A test
# compares the pages in docs/man with what comes out here.
set -eu
bauta=$1
folder=$2
mkdir -p "$folder"

# page NAME SUMMARY: --help on stdin, roff on stdout.
page() {
    awk -v name="$1" -v summary="$2" '
    function plain(text) { # for roff: no escapes, no requests
        gsub(/\\/, "\\e", text)
        gsub(/-/, "\\-", text)
        if (text ~ /^[.\047]/)
            text = "\\&" text
        return text
    }
    function marked(text, words, n, i, out) { # options bold, values italic
        n = split(text, words, " ")
        for (i = 1; i <= n; i++) {
            word = plain(words[i])
            if (words[i] ~ /^-/)
                word = "\\fB" word "\\fP"
            else if (words[i] ~ /^[A-Z=.]+$/)
                word = "\\fI" word "\\fP"
            out = out (i > 1 ? " " : "") word
        }
        return out
    }
    function verbatim(from, to, cut, i) {
        print ".nf"
        for (i = from; i < to; i++)
            print plain(substr(lines[i], cut))
        print ".fi"
    }
    function item(text, at) { # "  --name VALUE   what it is"
        text = substr(text, 3)
        at = match(text, /  +[^ ]/)
        print ".TP"
        print marked(at ? substr(text, 1, at - 1) : text)
        if (at)
            print plain(substr(text, at + RLENGTH - 1))
    }
    { lines[NR] = $0 }
    END {
        print ".\\\" Made by tools/make-man.sh; do not edit."
        print ".TH " toupper(name) " 1 \"\" bauta"
        print ".SH NAME"
        print plain(name) " \\- " plain(summary)
        print ".SH SYNOPSIS"
        for (i = 1; lines[i] != ""; i++)
            sub(/^usage:/, "      ", lines[i])
        verbatim(1, i, 8)
        print ".SH DESCRIPTION"
        for (i++; i <= NR; i++) {
            if (lines[i] == "" && lines[i + 2] ~ /^  /)
                break
            print lines[i] == "" ? ".PP" : plain(lines[i])
        }
        while (++i <= NR) {
            heading = lines[i]
            print ".SH " toupper(plain(heading))
            for (end = ++i; end <= NR && lines[end] != ""; end++)
                ;
            if (heading == "examples")
                verbatim(i, end, 3)
            for (; i < end; i++)
                if (heading == "examples")
                    continue
                else if (lines[i] ~ /^  [^ ]/)
                    item(lines[i])
                else {
                    sub(/^ +/, "", lines[i])
                    print plain(lines[i])
                }
        }
        print ".SH EXIT STATUS"
        print "0 when all went well, 1 when something failed, 2 when the " \
            "command line cannot be"
        print "understood."
    }'
}

summary_of() { # VERB
    "$bauta" --help | sed -n "s/^  $1  *\(.*\)/\1/p" | head -n 1
}
verbs=$("$bauta" --help |
    awk '/^$/ { on = 0 } on { print $1 } /^verbs$/ { on = 1 }')

"$bauta" --help | page bauta "Transformers whose heart is the mask" \
    >"$folder/bauta.1"
for verb in $verbs; do
    case $verb in
    tokenizer) "$bauta" tokenizer train --help ;;
    *) "$bauta" "$verb" --help ;;
    esac | page "bauta-$verb" "$(summary_of "$verb")" >"$folder/bauta-$verb.1"
done
# Each page names the others.
names=$(cd "$folder" && ls bauta*.1)
for file in $names; do
    {
        echo ".SH SEE ALSO"
        for other in $names; do
            [ "$other" = "$file" ] || echo "$other"
        done | sed 's/-/\\-/g; s/\(.*\)\.1/.BR \1 (1),/; $s/,$//'
    } >>"$folder/$file"
done
