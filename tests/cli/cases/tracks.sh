# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Tracks have tokens each; the cache has those of the longest one.
tracks=$top/spec/vectors/good-tracks.kva
kv info "$tracks" | grep '^  tokens'
for verb in info list test; do
	kv $verb --json "$tracks" 2> /dev/null | grep -o '"tokens":[0-9]*' | tr '\n' ' '
	echo
done
