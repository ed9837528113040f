# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# More items than descriptors: whole or not at all, and nothing else is left.
needs LIBARCHIVE
mkdir in
cp "$SLOT" in/slot.bin
seq 60 | split -l 1 -a 2 - in/m
tar --format=ustar -cf a.tar in/*
"$KVARC" pack -q --members a.tar 2> /dev/null
kv info --json a.tar.kva 2> /dev/null | grep -q '"name":"in/maa"' || echo "it was kept whole"
ulimit -n 64

# What is in out/ itself; the folder in/ of the files was made for the names to be checked.
hidden() {
	find out -mindepth 1 -maxdepth 1 | sed 's/-[0-9a-f]*\.d$/-HEX.d/' | sort
}

# A run that waits for the rest of its input; sets pid.
start() {
	env --default-signal=INT "$KVARC" unpack -o out/ - < fifo &
	pid=$!
	exec 3<> fifo
	timeout 20 head -c 1500000 a.tar.kva >&3
	tries=0
	while [ "$(find out -path '*.d/*' 2> /dev/null | wc -l)" != 61 ] && [ $tries -lt 200 ]; do
		sleep 0.05
		tries=$((tries + 1))
	done
}

echo "# all, into a new folder"
kv unpack -o out/ a.tar.kva
diff -r in out/in > /dev/null && echo "all came back"
hidden
echo "# the same again"
kv unpack -o out/ a.tar.kva
kv unpack -f -o out/ a.tar.kva
diff -r in out/in > /dev/null && echo "all came back"
hidden
echo "# one is there already"
find out -type f ! -name mbz -delete
kv unpack -o out/ a.tar.kva
find out -type f
hidden
rm -r out
env --default-signal=INT true 2> /dev/null || skip "env has no --default-signal"
mkfifo fifo
echo "# interrupted"
start
hidden
kill -s INT $pid
{ wait $pid; } 2> /dev/null
echo "exit $?"
exec 3>&-
hidden
find out -type f
echo "# killed; the next run removes what it left, once that is old"
start
{ kill -s KILL $pid; wait $pid; } 2> /dev/null # the shell's own message, too
exec 3>&-
kv pack -q -o out/b.kva "$SLOT"
hidden
find out -name '.*' -exec touch -d '2 minutes ago' {} +
kv pack -q -f -o out/b.kva "$SLOT"
hidden
echo "# in use, and one that is not ours"
start
mkdir out/.a.kvarc-0123456.d out/.b.kvarc-01234567.d
: > out/.b.kvarc-01234567.d/note
find out -name '.*' -exec touch -d '2 minutes ago' {} +
kv pack -q -f -o out/b.kva "$SLOT"
hidden
{ kill -s KILL $pid; wait $pid; } 2> /dev/null # the shell's own message, too
exec 3>&-
