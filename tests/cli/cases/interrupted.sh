# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# A signal in the middle: no file is left, and the parent sees the signal.
env --default-signal=INT true 2> /dev/null || skip "env has no --default-signal"
kv pack -o a.kva "$SLOT"
head -c 1500000 a.kva > part
mkfifo fifo
for signal in INT TERM HUP; do
	env --default-signal=INT,TERM,HUP "$KVARC" unpack -o back - < fifo &
	pid=$!
	exec 3<> fifo # opens at once, whatever the command does
	cat part >&3
	tries=0
	while [ -z "$(find . -name '.back.kvarc-*')" ] && [ $tries -lt 100 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
	find . -name '.back.kvarc-*' | sed 's/-[0-9a-f]*$/-HEX/'
	kill -s $signal $pid
	{ wait $pid; } 2> /dev/null
	echo "$signal: $?"
	exec 3>&-
	names
done
