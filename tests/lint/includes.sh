#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# includes.sh - dependencies between the folders of src/ point downward only.
#
#   includes.sh SOURCE         check, and compare with docs/architecture.md
#   includes.sh SOURCE graph   print the graph that the document shows
set -eu
cd "$1"

# Top to bottom: a folder may include headers of itself and of lower lines.
# Folders on one line do not include each other.
layers="audit
series
train decode
data model draw score
text
runtime
autograd
backend
mask
formats
tensor
base"

# "FILE INCLUDED" for every include of one of our own headers in src/. Names
# without a folder are in the same folder.
includes() {
    find src -name '*.c' -o -name '*.h' -o -name '*.cu' | sort |
        xargs grep -HoE '^[[:blank:]]*#[[:blank:]]*include "[^"]+"' |
        sed 's/:[^"]*"/ /; s/"$//'
}

# "FROM TO COUNT" for every pair of folders, in the order of the layers.
edges() {
    includes | awk -v layers="$layers" '
    BEGIN {
        n = split(layers, line, "\n")
        for (i = 1; i <= n; i++) {
            m = split(line[i], name, " ")
            for (j = 1; j <= m; j++)
                rank[name[j]] = n - i + 1
        }
    }
    {
        split($1, file, "/")
        from = file[2]
        to = from
        if ($2 != "bauta.h" && $2 !~ /^bauta\// && split($2, part, "/") > 1)
            to = part[1]
        if (!(from in rank))
            print "unknown " from " in " $1
        else if (!(to in rank))
            print "unknown " to " in " $1
        else if (to != from && rank[to] >= rank[from])
            print "upward " $1 " includes " $2
        else if (to != from)
            count[from " " to]++
    }
    END {
        for (edge in count) {
            split(edge, end, " ")
            printf "%02d %s %02d %s %d\n", n - rank[end[1]], end[1], \
                n - rank[end[2]], end[2], count[edge]
        }
    }' | sort | awk '/^[0-9]/ { print $2, $4, $5; next } { print }'
}

# One line a folder: "train -> data 3, model 3".
graph() {
    edges | awk '
    $1 != from { if (from) print row; from = $1; row = sprintf("%-8s ->", $1) }
    { row = row (row ~ />$/ ? " " : ", ") $2 " " $3 }
    END { if (from) print row }'
}

if [ "${2:-}" = graph ]; then
    graph
    exit
fi
if edges | grep -E '^(upward|unknown) '; then
    echo "a folder of src/ includes only what is below it: tests/lint/includes.sh"
    exit 1
fi
# The document must show this graph.
want=$(graph)
have=$(sed -n '/^<!-- include graph -->/,/^<!-- end -->/p' docs/architecture.md |
    grep -v -e '^<!--' -e '^```')
if [ "$want" != "$have" ]; then
    echo "docs/architecture.md does not show the graph that this prints:"
    echo "$want"
    exit 1
fi
echo "$(includes | wc -l) includes, $(edges | wc -l) edges, none upward"
