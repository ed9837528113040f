# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Temporary files of killed runs are removed by the next run in the folder; no other file is.
kv pack -q -o a.kva "$SLOT"
head -c 1500000 a.kva > part
tail -c +1500001 a.kva > rest
mkfifo fifo

# A run that waits for the rest of its input; sets pid.
start() {
	"$KVARC" unpack -o back - < fifo &
	pid=$!
	exec 3<> fifo
	cat part >&3
	tries=0
	while [ -z "$(find . -name '.back.kvarc-*' -size +1)" ] && [ $tries -lt 200 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
}

hidden() {
	find . -name '.*?' | sed 's/back.kvarc-[0-9a-f]\{8\}$/back.kvarc-HEX/' | sort
}

make_old() {
	find . -name '.*?' -exec touch -h -d '2 minutes ago' {} +
}

echo "# killed just now"
start
{ kill -s KILL $pid; wait $pid; } 2> /dev/null
exec 3>&-
kv pack -q -f -o b.kva "$SLOT"
hidden
echo "# names and types that are not ours, and a file that is"
: > .back.kvarc-0123456
: > .back.kvarc-0123456g
: > .backkvarc-01234567
mkdir .folder.kvarc-01234567
ln -s part .link.kvarc-01234567
mkfifo .fifo.kvarc-01234567
: > .other.kvarc-01234567
make_old
kv pack -q -f -o b.kva "$SLOT"
hidden
rm -rf .back* .folder* .link* .fifo*
echo "# in use"
start
make_old
kv pack -q -f -o b.kva "$SLOT"
hidden
{ cat rest >&3; exec 3>&-; } &
exec 3>&-
wait $pid
echo "exit $?"
cmp back "$SLOT"
hidden
