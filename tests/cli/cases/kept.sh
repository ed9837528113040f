# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Converted weights of models are kept where the environment says, and nowhere else.
needs JANSSON
mkdir home model
# shellcheck disable=SC2154 # top: of run.sh
cp "$top/tests/data/models/llama/"* model
chmod u+w model/*
sleep 0.2 # what has just been written is not kept
HOME=$PWD/home
KVARC_CACHE=cache
export HOME
unset XDG_CACHE_HOME
train() {
	kv train -f -q -v -v -o own.kvp --level 5 --model model --first-token 1 --generate 20 \
		"$@" > /dev/null 2> said
	sed -n '/weights/{s/([0-9.]* kB)/(N)/; p}' said | sort -u
}
echo "# miss, and hit"
train
cp own.kvp miss.kvp
train
cmp own.kvp miss.kvp
names | sed -E 's/[0-9a-f]{32}/KEY/' | sort -u
echo "# the model was touched"
touch model/config.json
sleep 0.2
train
cmp own.kvp miss.kvp
echo "# a flipped bit"
rm -rf cache
train > /dev/null
for f in cache/*.kvw; do
	flip "$f" 6000
done
train
cmp own.kvp miss.kvp
echo "# several at once"
rm -rf cache
for i in 1 2 3; do
	kv train -f -q -o own$i.kvp --level 5 --model model --first-token 1 --generate 20 \
		> /dev/null 2>&1 &
done
wait
for i in 1 2 3; do
	cmp own$i.kvp miss.kvp
done
find cache -type f | sed -E 's/[0-9a-f]{32}/KEY/'
echo "# another arithmetic"
train --arith fp8
train --arith fp8
echo "# no folder can be made there"
KVARC_CACHE=own.kvp/cache
train
echo "# too large"
KVARC_CACHE=small
KVARC_CACHE_SIZE=5K
export KVARC_CACHE_SIZE
train
KVARC_CACHE_SIZE=many
kv pack --model model "$SLOT"
unset KVARC_CACHE_SIZE
echo "# off"
KVARC_CACHE=off
train
KVARC_CACHE=
train
find home
echo "# by default"
unset KVARC_CACHE
train | sed "s|$PWD|.|"
find home | sed -E 's/[0-9a-f]{32}/KEY/' | sort -u
XDG_CACHE_HOME=$PWD/xdg
export XDG_CACHE_HOME
train | sed "s|$PWD|.|"
XDG_CACHE_HOME=relative # is not to be used
train | sed "s|$PWD|.|"
