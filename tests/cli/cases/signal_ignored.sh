# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Under nohup a hang-up does not stop the work.
env --ignore-signal=HUP true 2> /dev/null || skip "env has no --ignore-signal"
kv pack -o a.kva "$SLOT"
mkfifo fifo
env --ignore-signal=HUP "$KVARC" unpack -o back - < fifo &
pid=$!
exec 3<> fifo
head -c 1000000 a.kva >&3
kill -s HUP $pid
tail -c +1000001 a.kva >&3
exec 3>&-
wait $pid
cmp back "$SLOT"
