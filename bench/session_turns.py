#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A session of one slot a turn in one archive: bytes written and time, by turn.

session_turns.py KVARC FOLDER [OPTION...]

FOLDER has files turn-*.bin, in the order of their names; tests/engines/turns.py makes some.
Each is appended to an archive with `kvarc append OPTION...`; then each checkpoint is unpacked and
compared, the last slot packed by itself, and the archive compacted. The time of a turn is the
fastest of RUNS (5) appends of it to a copy. Prints a line a turn, and the sums: bytes that the
appends wrote over those of one pack of the last slot and of all slots in full, the time by new
token of the last turn over that of the second. Exit 1 when a checkpoint is not its slot, the first
is above 1.05, or the time above 1.5.
"""
import filecmp
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

BYTES_MAX, TIME_MAX = 1.05, 1.5
RUNS = int(os.environ.get('RUNS', '5'))


def run(*command):
    r = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if r.returncode:
        sys.exit('failed: ' + ' '.join(command))
    return r.stdout


def append(kvarc, archive, slot, options):
    """The report of the fastest append, and its seconds; the archive has the slot then."""
    best, copy = None, archive + '.copy'
    for _ in range(RUNS):
        if os.path.exists(copy):
            os.remove(copy)
        if os.path.exists(archive):
            shutil.copy(archive, copy)
        start = time.monotonic()
        report = json.loads(run(kvarc, 'append', '--json', *options, copy, slot))
        seconds = time.monotonic() - start
        if best is None or seconds < best[1]:
            best = report, seconds
    os.replace(copy, archive)
    return best


def main(kvarc, folder, *options):
    slots = sorted(glob.glob(os.path.join(folder, 'turn-*.bin')))
    if len(slots) < 2:
        sys.exit('no turn-*.bin in ' + folder)
    work = tempfile.mkdtemp(prefix='kvarc-turns.')
    archive, packed, back = (os.path.join(work, n) for n in ('s.kva', 'p.kva', 'back'))
    written, full, rates = 0, 0, []
    print('turn  tokens    new     written   ms  us/new token')
    for i, slot in enumerate(slots):
        report, seconds = append(kvarc, archive, slot, options)
        new = report['new_tokens']
        rates.append(seconds / max(new, 1))
        written += report['written_bytes']
        full += os.path.getsize(slot)
        print(f'{i + 1:4} {report["tokens"]:7} {new:6} {report["written_bytes"]:11} '
              f'{1000 * seconds:4.0f} {1e6 * rates[-1]:9.0f}', flush=True)
    good = True
    profile = [o for i, o in enumerate(options) if '--profile' in options[max(i - 1, 0):i + 1]]
    for i, slot in enumerate(slots):
        run(kvarc, 'unpack', '-q', '-f', *profile, '--checkpoint', str(i + 1), '-o', back,
            archive)
        if not filecmp.cmp(back, slot, shallow=False):
            print(f'checkpoint {i + 1} is not {slot}')
            good = False
    level = [o for o in options if o != '--verify']
    run(kvarc, 'pack', '-q', *level, '-o', packed, slots[-1])
    run(kvarc, 'compact', '-q', *level, '-o', back, '-f', archive)
    one, small = os.path.getsize(packed), os.path.getsize(back)
    slower = rates[-1] / rates[1]
    print(f'{len(slots)} appends wrote {written} bytes: {written / one:.4f} of one pack of the '
          f'last slot ({one}), 1/{full / written:.1f} of all slots in full ({full}); compacted '
          f'{small / one:.4f}')
    print(f'a new token of the last turn takes {slower:.2f} times as long as one of the second')
    print(f'checkpoints that restore their slot: {"all" if good else "NOT ALL"}')
    shutil.rmtree(work)
    return good and written <= BYTES_MAX * one and slower <= TIME_MAX


if __name__ == '__main__':
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(not main(*sys.argv[1:]))
