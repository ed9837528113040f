#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Write archives of every feature with the command of a release; later versions read them.

make.py FOLDER (tests/compat/1.0): archives, the keys and profiles that they need, a store, and
`list`: a line "SHA-256 ARCHIVE [OPTION...]" for what `kvarc unpack OPTION... ARCHIVE` has to
write. $KVARC is the command; needs zstd. Run it once for a format, then keep what it wrote:
the folder is not made again, what is new gets a folder of its own.
"""
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KVARC = os.path.abspath(os.environ.get('KVARC', 'kvarc'))
SAMPLE = os.path.join(TESTS, 'data', 'sample', 'smollm2-135m-bf16-160.safetensors')
IMPORT = os.path.join(TESTS, 'data', 'import')


def kvarc(*words):
    done = subprocess.run([KVARC, words[0], '-q', *words[1:]], check=False)
    if done.returncode not in (0, 2):    # 2: a warning
        sys.exit('kvarc %s: exit status %d' % (' '.join(words), done.returncode))


def safetensors(path, tensors, metadata=None):
    """tensors: name, dtype, shape, bytes."""
    head, at = {'__metadata__': metadata} if metadata else {}, 0
    for name, dtype, shape, data in tensors:
        head[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as out:
        out.write(struct.pack('<Q', len(text)) + text + b''.join(t[3] for t in tensors))


def packed(dtype, numbers):
    if dtype == 'F32':
        return struct.pack('<%df' % len(numbers), *numbers)
    if dtype == 'F16':
        return struct.pack('<%de' % len(numbers), *numbers)
    if dtype == 'BF16':
        return b''.join(struct.pack('<f', x)[2:] for x in numbers)
    # one byte: a sign, an exponent and fractions that are likely for normal numbers
    return bytes((x < 0) << 7 | min(max(int(8 * (abs(x) ** .5 + 4)), 0), 126) for x in numbers)


def types(path):
    """A layer of each dtype, with channels that are constant and numbers that are none."""
    numbers = random.Random(1)
    tensors = []
    for layer, dtype in enumerate(('F32', 'F16', 'BF16', 'F8_E4M3', 'F8_E5M2', 'I8')):
        for what in ('key', 'value'):
            rows = []
            for _ in range(96):
                row = [numbers.gauss(c - 4, .2 + .1 * c) for c in range(16)]
                row[3] = 1.0
                rows += row
            if dtype in ('F32', 'F16', 'BF16') and what == 'value':
                rows[17], rows[40] = float('inf'), float('nan')
            tensors.append(('layers.%d.%s' % (layer, what), dtype, [1, 96, 16],
                            packed(dtype, rows)))
    safetensors(path, tensors)


def model_cache(path, model):
    """A small model, and what transformers computes of it (tests/data/models/make_caches.py)."""
    blob = subprocess.run(['zstd', '-dcq', os.path.join(TESTS, 'data', 'models', 'caches.zst')],
                          check=True, capture_output=True).stdout
    at, entries = 0, {}
    while at < len(blob):
        name_n, n = struct.unpack_from('<II', blob, at)
        name, at = blob[at + 8:at + 8 + name_n], at + 8 + name_n + n
        entries[name] = blob[at - n:at]
    with open(model, 'wb') as out:
        out.write(entries[b'qwen3/model.gguf'])
    entry = entries[b'qwen3/cache']
    layers, tokens, first, channels = struct.unpack_from('<4I', entry)
    ids = struct.unpack_from('<%di' % tokens, entry, 16)
    at = 16 + 8 * tokens
    tensors = []
    for layer in range(layers):
        for what in ('key', 'value'):
            scale = struct.unpack_from('<f', entry, at)[0]
            n = (tokens - first) * channels
            rows = struct.unpack_from('<%dh' % n, entry, at + 4)
            at += 4 + 2 * n
            tensors.append(('layers.%d.%s' % (layer, what), 'BF16', [1, tokens - first, channels],
                            packed('BF16', [x * scale for x in rows])))
    tensors.append(('input_ids', 'I32', [tokens], struct.pack('<%di' % tokens, *ids)))
    safetensors(path, tensors)


class Folder:
    def __init__(self, path):
        self.path, self.lines = path, []
        os.makedirs(path)

    def __truediv__(self, name):
        return os.path.join(self.path, name)

    def add(self, name, source, *options):
        """What unpacking an archive of the folder has to write."""
        with open(source, 'rb') as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        self.lines.append(' '.join((digest, name, *options)))

    def pack(self, name, source, *options, unpack=()):
        kvarc('pack', *options, '-o', self / name, source)
        self.add(name, source, *unpack)


def levels(folder, work):
    cache, whole = work + '/cache.safetensors', work + '/whole.kva'
    kvarc('pack', '-o', whole, SAMPLE)
    kvarc('cut', '--tokens', '0-63', '--layers', '0-1', '-o', work + '/cut.kva', whole)
    kvarc('unpack', '--to', 'safetensors', '-o', cache, work + '/cut.kva')
    types(work + '/types.safetensors')
    for level in '01':
        folder.pack('level%s.kva' % level, cache, '-' + level)
        folder.pack('types%s.kva' % level, work + '/types.safetensors', '-' + level, '--as-cache')
    kvarc('cut', '--layers', '0-1', '-o', work + '/fit.kva', whole)
    for level in '23':
        profile = 'level%s.kvp' % level
        kvarc('train', '-o', folder / profile, '--level', level, '--rope', '100000',
              work + '/fit.kva')
        folder.pack('level%s.kva' % level, cache, '-' + level, '--profile', folder / profile,
                    unpack=('--profile', profile))
    made, model = work + '/qwen3.safetensors', folder / 'qwen3.gguf'
    model_cache(made, model)
    for level in '4567':
        profile = 'level%s.kvp' % level
        kvarc('train', '-o', folder / profile, '--level', level, '--model', model,
              '--first-token', '1', '--generate', '3000')
        folder.pack('level%s.kva' % level, made, '-' + level, '--as-cache', '--model', model,
                    '--profile', folder / profile,
                    unpack=('--model', 'qwen3.gguf', '--profile', profile))
    folder.pack('level8.kva', made, '-8', '--as-cache', '--model', model, '--token-ids', 'model',
                unpack=('--model', 'qwen3.gguf'))
    folder.pack('embedded.kva', cache, '-3', '--embed-profile', '--profile',
                folder / 'level3.kvp')
    return cache


def containers(folder, cache):
    for kind, name in (('slot', 'engine-hybrid.bin'), ('state', 'ggsq4-long.bin'),
                       ('mlx', 'mlx-0.32.safetensors')):
        folder.pack(kind + '.kva', os.path.join(IMPORT, name), '--as-cache')
    folder.pack('tar.kva', os.path.join(IMPORT, 'vllm-packed.tar'))
    folder.pack('opaque.kva', os.path.join(IMPORT, 'box-pax.tar'), '--opaque')
    folder.pack('streamable.kva', cache, '--streamable')
    folder.pack('parity.kva', cache, '--parity', '10')
    os.umask(0o77)  # of keys
    with open(folder / 'test.key', 'w', encoding='ascii') as out:
        out.write('00112233445566778899aabbccddeeff' * 2 + '\n')
    with open(folder / 'test.passphrase', 'w', encoding='ascii') as out:
        out.write('correct horse battery staple\n')
    for kind in ('key', 'passphrase'):
        option = '--%s-file' % kind
        folder.pack(kind + '.kva', cache, '--encrypt', option, folder / ('test.' + kind),
                    unpack=(option, 'test.' + kind))


def growing(folder, work):
    """Turns of a session: an archive with checkpoints, the second of which goes back; a store."""
    whole, turns = work + '/whole.kva', []
    for i, tokens in enumerate(('0-9', '0-15', '0-12', '0-23')):
        turns.append('%s/turn%d.safetensors' % (work, i))
        kvarc('cut', '--tokens', tokens, '--layers', '0-1', '-o', work + '/turn.kva', '-f', whole)
        kvarc('unpack', '--to', 'safetensors', '-o', turns[-1], work + '/turn.kva')
    name, store = 'turns.kva', folder / 'store'
    kvarc('pack', '-o', folder / name, turns[0])
    for i, turn in enumerate(turns):
        if i:
            kvarc('append', folder / name, turn)
        folder.add(name, turn, '--checkpoint', str(i + 1))
        kvarc('session', 'save', '--store', store, 'chat', turn)
    kvarc('session', 'fork', '--store', store, 'chat@2', 'other')
    kvarc('session', 'save', '--store', store, 'other', turns[3])
    kvarc('store', 'export', '--store', store, '-o', folder / 'store.tar')
    with open(folder / 'sessions', 'w', encoding='ascii') as out:
        for session, turn in [('chat@%d' % (i + 1), t) for i, t in enumerate(turns)] + [
                ('other@1', turns[1]), ('other@2', turns[3])]:
            with open(turn, 'rb') as file:
                print(hashlib.sha256(file.read()).hexdigest(), session, file=out)


def main():
    os.environ.update(KVARC_CACHE='off', SOURCE_DATE_EPOCH='1790000000')
    folder = Folder(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        cache = levels(folder, work)
        containers(folder, cache)
        growing(folder, work)
    with open(folder / 'list', 'w', encoding='ascii') as out:
        out.write('\n'.join(folder.lines) + '\n')


if __name__ == '__main__':
    main()
