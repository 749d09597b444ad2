#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# multi30k.sh - English to German from 29,000 descriptions of pictures.
#
# The recipe of Wu and others (ACL 2021): a Transformer of 4 + 4 layers, 128
# wide, 8,000 steps of about 8,192 target tokens; here on plain text with a
# joint vocabulary of 8,000 pieces. At the end the last ten checkpoints, one an
# epoch, are averaged.
#
#   examples/multi30k.sh [RUN] [OPTION...]
#
# The texts are $BAUTA_DATA/multi30k/*.gz; options go to bauta train, such as
# '--steps 500' for a look.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
bauta=${BAUTA:-$here/build/bauta}
data=${BAUTA_DATA:-$here/../shared/data}/multi30k
run=${1:-multi30k}
[ $# = 0 ] || shift

texts=$run.texts
mkdir -p "$texts"
for part in train val test_2016_flickr; do
    for language in en de; do
        gzip -dc "$data/$part.$language.gz" >"$texts/$part.$language"
    done
done

begin=$(date +%s)
"$bauta" train --preset transformer-tiny --tokenizer unigram:8000 \
    --source "$texts/train.en" --target "$texts/train.de" \
    --valid-source "$texts/val.en" --valid-target "$texts/val.de" \
    --set dropout=0.3 --dropout 0.3 --batch-tokens 8192 --steps 8000 \
    --schedule inverse-sqrt --learning-rate 5e-3 --min-learning-rate 1e-9 \
    --warmup 2000 --clip 25 \
    --eval-every 60 --keep 10 --average 10 --out "$run" "$@"
end=$(date +%s)
echo "wall time: $((end - begin)) s"

for beams in 1 5; do
    "$bauta" translate "$run/average" --beams $beams \
        <"$texts/test_2016_flickr.en" >"$run/test.beam$beams.de"
    echo "beams: $beams"
    "$bauta" score --ref "$texts/test_2016_flickr.de" "$run/test.beam$beams.de"
done
