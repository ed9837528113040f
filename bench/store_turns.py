#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""store_turns.py - what encryption costs a session in a store: bytes and time, by turn

usage: store_turns.py KVARC SLOT [TURNS [OPTION...]]
Cuts a slot of llama.cpp into TURNS (40) turns of about as many new tokens each, saves them one after
another in new stores in memory, without encryption, with a key and with a passphrase, and loads the
last one. Prints a line for each: bytes that were written in all and over those without encryption,
the sum of the times of all saves, the fastest of the last five, and that of five loads.
Exit 1 when a turn does not come back as it was.
"""
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import time


def run(*command):
    start = time.monotonic()
    r = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if r.returncode:
        sys.exit('failed: ' + ' '.join(command))
    return r.stdout, time.monotonic() - start


def make_turns(kvarc, slot, folder, turns):
    archive = os.path.join(folder, 'slot.kva')
    run(kvarc, 'pack', '-q', '-0', '-o', archive, slot)
    tokens = json.loads(run(kvarc, 'info', '--json', archive)[0])['tracks'][0]['tokens']
    out = []
    for i in range(1, turns + 1):
        out.append(os.path.join(folder, 'turn-%02d.bin' % i))
        run(kvarc, 'unpack', '-q', '--to', 'llama', '--tokens', '0-%d' % (tokens * i // turns - 1),
            '-o', out[-1], archive)
    return out


def measure(kvarc, folder, name, turns, options, key):
    store, back = os.path.join(folder, 'store-' + name), os.path.join(folder, 'back')
    written, times = 0, []
    for i, turn in enumerate(turns):
        text, seconds = run(kvarc, 'session', 'save', 's', turn, '--store', store, '--json',
                            *options, *(['--encrypt'] if key else []), *key)
        written += json.loads(text)['written_bytes']
        times.append(seconds)
    load = min(run(kvarc, 'session', 'load', 's', '-q', '-f', '-o', back, '--store', store,
                   *key)[1] for _ in range(5))
    for i in (1, len(turns) // 2, len(turns)):
        run(kvarc, 'session', 'load', 's@%d' % i, '-q', '-f', '-o', back, '--store', store, *key)
        if not filecmp.cmp(back, turns[i - 1], shallow=False):
            sys.exit('turn %d is not what was saved' % i)
    return written, sum(times), min(times[-5:]), load


def main(kvarc, slot, turns='40', *options):
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        os.umask(0o077)
        key, phrase = os.path.join(folder, 'key'), os.path.join(folder, 'phrase')
        run(kvarc, 'keygen', '-q', key)
        with open(phrase, 'w') as f:
            f.write('correct horse battery staple\n')
        files = make_turns(kvarc, slot, folder, int(turns))
        plain = None
        print('            bytes written        saves s   a save ms   load ms')
        for name, use in (('none', []), ('key', ['--key-file', key]),
                          ('passphrase', ['--passphrase-file', phrase])):
            written, saves, last, load = measure(kvarc, folder, name, files, options, use)
            plain = plain or written
            print('%-10s %14d  %+.2f %%  %8.2f  %10.1f  %8.1f' %
                  (name, written, 100 * (written / plain - 1), saves, 1000 * last, 1000 * load))


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
