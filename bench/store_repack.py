#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""store_repack.py - bytes of a store whose long sessions go, with repacked archives and without

usage: store_repack.py KVARC SLOT [SESSIONS]
Cuts a slot of llama.cpp into SESSIONS (8) slots, of 1/SESSIONS of its tokens up to all of them. Two
stores in memory get each as a session of its own, the longest first: its archive holds the tokens of
all others. Then the longest session is removed, and gc runs, again and again. Prints for each step
the bytes of the archives without repacking and with it, those of an archive of the longest session
that is left, and the time of the gc that repacks. Exit 1 when a session does not come back as it was.
"""
import filecmp
import json
import os
import sys
import tempfile

from store_turns import make_turns, run


def archive_bytes(kvarc, store):
    return json.loads(run(kvarc, 'store', 'stat', '--json', '--store', store)[0])['archive_bytes']


def check(kvarc, store, slots, back):
    for i, slot in enumerate(slots):
        run(kvarc, 'session', 'load', 's/%d' % i, '-q', '-f', '-o', back, '--store', store)
        if not filecmp.cmp(back, slot, shallow=False):
            sys.exit('session %d is not what was saved' % i)


def main(kvarc, slot, sessions='8'):
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        slots = make_turns(kvarc, slot, folder, int(sessions))
        stores = [os.path.join(folder, name) for name in ('whole', 'repacked')]
        for store in stores:
            for i in reversed(range(len(slots))):
                run(kvarc, 'session', 'save', 's/%d' % i, slots[i], '-q', '--store', store)
        print('sessions  whole archives      repacked   one archive   gc ms   dry run ms')
        archive = os.path.join(folder, 'one.kva')
        for left in range(len(slots) - 1, 0, -1):
            for store in stores:
                run(kvarc, 'session', 'rm', 's/%d' % left, '-q', '--store', store)
            gc = [kvarc, 'store', 'gc', '-q', '--grace', '0', '--store']
            run(*gc, stores[0], '--no-repack')
            dry = run(*gc, stores[1], '--dry-run')[1]
            seconds = run(*gc, stores[1])[1]
            check(kvarc, stores[1], slots[:left], os.path.join(folder, 'back'))
            run(kvarc, 'store', 'verify', '--store', stores[1])
            run(kvarc, 'pack', '-q', '-f', '-o', archive, slots[left - 1])
            whole, repacked = (archive_bytes(kvarc, store) for store in stores)
            print('%8d  %14d  %12d  %12d  %6.0f  %11.0f' % (
                left, whole, repacked, os.path.getsize(archive), 1000 * seconds, 1000 * dry))


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
