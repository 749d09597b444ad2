#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fields.sh - list the structs and enums of the public headers as C macros:
#
#   STRUCT(type)        a struct
#   SIZED(type, INIT)   or one that starts with `size` and has an INIT value
#   FIELD(type, field)  its fields, in order
#   END(type)           its end
#   ENUM(constant)      a constant of an enum
#
#   fields.sh INCLUDE_DIR CC >fields.h
set -eu
headers() { # OPTION...: the preprocessed headers
    echo '#include <bauta.h>' | "$cc" "$@" -E -x c -I"$include" -
}
include=$1
cc=$2

echo "/* Written by tests/abi/fields.sh. */"
{
    headers -dM
    headers -P
} | awk '
$1 == "#define" { # known before the structs come
    sub(/\(.*/, "", $2)
    defined[$2] = 1
    next
}
{ text = text " " $0 }

# The name that a declaration introduces: the last one of "float *x[2]", or the
# x of "void (*x)(int)".
function name_of(part) {
    if (match(part, /\( *\* *[a-z_0-9]+ *\)/))
        part = substr(part, RSTART, RLENGTH)
    gsub(/\[[^]]*\]/, "", part)
    gsub(/[()* ]+/, " ", part)
    sub(/ +$/, "", part)
    sub(/.* /, "", part)
    return part
}

function struct_print(type, body,    i, j, n, m, fields, parts) {
    n = split(body, fields, ";")
    init = toupper(type) "_INIT"
    if (fields[1] ~ /^ *size_t +size *$/ && init in defined)
        print "SIZED(" type ", " init ")"
    else
        print "STRUCT(" type ")"
    for (i = 1; i < n; i++) {
        m = 1
        parts[1] = fields[i]
        if (fields[i] !~ /\(/)
            m = split(fields[i], parts, ",")
        for (j = 1; j <= m; j++)
            print "FIELD(" type ", " name_of(parts[j]) ")"
    }
    print "END(" type ")"
}

function enum_print(body,    i, n, parts) {
    n = split(body, parts, ",")
    for (i = 1; i <= n; i++) {
        sub(/=.*/, "", parts[i])
        gsub(/ /, "", parts[i])
        if (parts[i] != "")
            print "ENUM(" parts[i] ")"
    }
}

END {
    while (match(text, /typedef (struct|enum) bauta_[a-z_0-9]+ *\{[^}]*\}/)) {
        found = substr(text, RSTART, RLENGTH - 1)
        text = substr(text, RSTART + RLENGTH)
        split(found, words, " ")
        body = substr(found, index(found, "{") + 1)
        sub(/\{.*/, "", words[3])
        if (words[2] == "struct")
            struct_print(words[3], body)
        else
            enum_print(body)
    }
}'
