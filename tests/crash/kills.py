#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Commands that are killed at random moments (SIGKILL), and the files after that.

kills.py KVARC SLOT COUNT [NAME SETUP RUN CHECK]...

Each of COUNT rounds takes the next scenario. SETUP makes a state in an empty folder; RUN is killed
at a moment between its start and the time that a whole run takes; CHECK must succeed then, and
again behind a whole RUN. They are lines for sh, with $KVARC, $FIRST, $SECOND and $THIRD: slots of
which each begins with the one before; $LONG and $SHORT: tensors with 256 equal tokens in front.
Without scenarios of the caller: pack, pack -f, append, and with SQLite session save, also with a
key, and store gc, in the store s. Exit 1 at the first check that fails; the folder stays.
"""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

# A file under a final name is whole, or not there; nothing but temporary files is beside it.
SCENARIOS = [
    ('pack', ':', '"$KVARC" pack -q -o a.kva "$SECOND"',
     '[ ! -e a.kva ] || { "$KVARC" unpack -q -f -o back a.kva && cmp back "$SECOND"; }'),
    ('pack -f', '"$KVARC" pack -q -o a.kva "$FIRST"; cp a.kva old',
     '"$KVARC" pack -q -f -o a.kva "$SECOND"',
     'cmp -s a.kva old || { "$KVARC" unpack -q -f -o back a.kva && cmp back "$SECOND"; }'),
    # Two checkpoints are acknowledged; the third is there as a whole, or not.
    ('append', '"$KVARC" append -q a.kva "$FIRST"; "$KVARC" append -q a.kva "$SECOND"',
     '"$KVARC" append -q a.kva "$THIRD"',
     '"$KVARC" unpack -q -f --checkpoint 1 -o back a.kva && cmp back "$FIRST" &&'
     '"$KVARC" unpack -q -f --checkpoint 2 -o back a.kva && cmp back "$SECOND" &&'
     'case $("$KVARC" log --json a.kva 2> log) in *\'"number":3\'*)'
     '"$KVARC" unpack -q -f --checkpoint 3 -o back a.kva && cmp back "$THIRD" ;; esac'),
]
LOADS = ('"$KVARC" session load -q -f -o back a@1 && cmp back "$FIRST" &&'
         '"$KVARC" session load -q -f -o back a@2 && cmp back "$SECOND" && "$KVARC" store verify &&')
# With SQLite.
STORES = [
    # Two versions are acknowledged; the third is there as a whole, or not.
    ('session save',
     '"$KVARC" session save -q a "$FIRST"; "$KVARC" session save -q a "$SECOND"',
     '"$KVARC" session save -q a "$THIRD"',
     LOADS + 'case $("$KVARC" session log --json a) in *\'"version":3\'*)'
     '"$KVARC" session load -q -f -o back a@3 && cmp back "$THIRD" ;; esac'),
    # What versions need stays; another session shares it, and is gone.
    ('store gc',
     '"$KVARC" session save -q a "$FIRST"; "$KVARC" session save -q b "$THIRD";'
     '"$KVARC" session save -q a "$SECOND"; "$KVARC" session save -q c "$KVARC" 2> log;'
     '"$KVARC" session rm -q b; "$KVARC" session rm -q c',
     '"$KVARC" store gc -q --grace 0', LOADS + ':'),
    # Of an archive that goes one segment of five is needed.
    ('store gc that copies',
     '"$KVARC" session save -q a "$LONG"; "$KVARC" session save -q b "$SHORT";'
     '"$KVARC" session rm -q a',
     '"$KVARC" store gc -q --grace 0',
     '"$KVARC" session load -q -f -o back b && cmp back "$SHORT" && "$KVARC" store verify'),
    ('session save with a key',
     '"$KVARC" keygen -q key; "$KVARC" session save -q a "$FIRST" --encrypt --key-file key;'
     '"$KVARC" session save -q a "$SECOND" --key-file key',
     '"$KVARC" session save -q a "$THIRD" --key-file key',
     '"$KVARC" session load -q -f -o back a@1 --key-file key && cmp back "$FIRST" &&'
     '"$KVARC" session load -q -f -o back a@2 --key-file key && cmp back "$SECOND" &&'
     '"$KVARC" store verify --key-file key &&'
     'case $("$KVARC" session log --json a) in *\'"version":3\'*)'
     '"$KVARC" session load -q -f -o back a@3 --key-file key && cmp back "$THIRD" ;; esac'),
]


class Round:
    def __init__(self, scenario, environment, folder):
        self.name, self.setup, self.command, self.check = scenario
        self.environment, self.folder = environment, folder

    def sh(self, line):
        return subprocess.run(['sh', '-c', line], cwd=self.folder, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def need(self, line, what):
        r = self.sh(line)
        # 2: a warning, as of an archive whose last append did not end
        if r.returncode not in (0, 2):
            sys.exit(f'kills.py: {self.name}: {what} ({r.returncode}): {r.stdout}\n'
                     f'the state is in {self.folder}')

    def begin(self):
        self.need(self.setup, 'the setup')

    def killed(self, delay):
        """Whether the command was killed before its end."""
        p = subprocess.Popen(['sh', '-c', 'exec ' + self.command], cwd=self.folder,
                             env=self.environment, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        time.sleep(delay)
        p.send_signal(signal.SIGKILL)
        return p.wait() == -signal.SIGKILL

    def end(self):
        self.need(self.check, 'behind the kill')
        # What was killed may have ended: an append of the same again is fine, a pack is not.
        self.need(self.command if self.name != 'pack' else 'rm -f a.kva; ' + self.command,
                  'the next run')
        self.need(self.check, 'behind the next run')


def seconds_of(scenario, environment, folder):
    """How long a whole run takes."""
    os.mkdir(folder)
    r = Round(scenario, environment, folder)
    r.begin()
    start = time.monotonic()
    r.need(r.command, 'a whole run')
    took = time.monotonic() - start
    shutil.rmtree(folder)
    return took


def make_slots(kvarc, slot, work):
    environment = dict(os.environ, KVARC=os.path.abspath(kvarc), KVARC_CACHE='off', KVARC_STORE='s')
    for name in ('KVARC_MODEL_PATH', 'KVARC_PROFILE_PATH'):
        environment.pop(name, None)
    archive = os.path.join(work, 'all.kva')
    run = [environment['KVARC']]
    subprocess.run(run + ['pack', '-q', '-o', archive, slot], check=True)
    for name, last in (('FIRST', 59), ('SECOND', 99), ('THIRD', 149)):
        environment[name] = os.path.join(work, name.lower())
        subprocess.run(run + ['unpack', '-q', '--to', 'llama', '--tokens', f'0-{last}', '-o',
                              environment[name], archive], check=True)
    rows = [os.urandom(128 * 1280) for _ in range(2)]
    for name, tokens in (('LONG', 1280), ('SHORT', 300)):
        environment[name] = os.path.join(work, name.lower())
        make_tensors(environment[name], rows, tokens)
    return environment


def make_tensors(path, rows, tokens):
    """Keys and values of one head, of 64 F16 channels."""
    size, header = 128 * tokens, {}
    for i, name in enumerate(('key', 'value')):
        header['past_key_values.0.' + name] = {'dtype': 'F16', 'shape': [1, 1, tokens, 64],
                                               'data_offsets': [i * size, (i + 1) * size]}
    text = json.dumps(header).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + rows[0][:size] + rows[1][:size])


def has_stores(environment, work):
    r = subprocess.run([environment['KVARC'], 'session', 'save', '-q', 'a', environment['FIRST'],
                        '--store', os.path.join(work, 'probe')], env=environment, check=False)
    return r.returncode == 0


def main(kvarc, slot, count, *more):
    work = tempfile.mkdtemp(prefix='kvarc-kills.')
    environment = make_slots(kvarc, slot, work)
    scenarios = [tuple(more[i:i + 4]) for i in range(0, len(more), 4)]
    if not scenarios:
        scenarios = list(SCENARIOS)
        if has_stores(environment, work):
            scenarios += STORES
    random.seed(int(os.environ.get('KILLS_SEED', '1')))
    took = [seconds_of(s, environment, os.path.join(work, 'whole')) for s in scenarios]
    ended = 0
    for i in range(int(count)):
        folder = os.path.join(work, 'round')
        os.mkdir(folder)
        r = Round(scenarios[i % len(scenarios)], environment, folder)
        r.begin()
        ended += not r.killed(random.uniform(0, 1.1 * took[i % len(scenarios)]))
        r.end()
        shutil.rmtree(folder)
    shutil.rmtree(work)
    print(f'{count} kills in {", ".join(s[0] for s in scenarios)}, {ended} behind the end: '
          'no torn file, no checkpoint lost, no run blocked')


if __name__ == '__main__':
    if len(sys.argv) < 4 or len(sys.argv) % 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
