#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Peak memory of packing and unpacking caches of 1 GB.

memory.py [CACHE.safetensors [SLOT]]; the command is $KVARC; BYTES=1000000000.

The caches are tiled from real ones: the tokens but the last one again and again, so
that chunks differ and none is a REPEAT, positions going on. Anonymous memory is sampled every few milliseconds; the other column is the
peak of everything resident, which counts pages of a mapped input too.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import common as c

BYTES = int(os.environ.get('BYTES', '1000000000'))
TARGET_MIB = 64
THETA = 100000. # of SmolLM2, whose pairs are half-split


def apply_rope(part, channels, by):
    """bf16 keys of a head at positions that are larger by a number."""
    import numpy
    half = channels // 2
    angle = by * THETA ** (-numpy.arange(half) / half)
    c, s = numpy.cos(angle), numpy.sin(angle)
    bits = numpy.frombuffer(part, numpy.uint16).astype(numpy.uint32) << 16
    x = bits.view(numpy.float32).astype(numpy.float64).reshape(-1, channels)
    a, b = x[:, :half], x[:, half:]
    y = numpy.concatenate([a * c - b * s, b * c + a * s], 1)
    bits = y.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(numpy.uint16).tobytes()


def tile_safetensors(path, out, size, rope=False):
    """[heads, tokens, channels] tensors, each head's tokens but the last repeated;
    rope: keys as they are at their positions, so that profiles predict them."""
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    times = -(-size // len(data))
    new, parts, at = {}, [], 0
    for k in sorted(head, key=lambda k: head[k]['data_offsets']):
        t = dict(head[k])
        part = data[slice(*t['data_offsets'])]
        axis = len(t['shape']) // 2 # of tokens: 0 of token ids
        heads = t['shape'][0] if axis else 1
        step = len(part) // heads
        row = step // t['shape'][axis]
        t['shape'] = list(t['shape'])
        used = t['shape'][axis] - 1
        t['shape'][axis] = used * times
        length = heads * (step - row) * times
        t['data_offsets'] = [at, at + length]
        new[k] = t
        channels = t['shape'][2] if axis and rope and k.endswith('key') else 0
        parts += [(part[i:i + step - row], channels)
                  for i in range(0, len(part), step)]
        at += length
    text = json.dumps(new).encode()
    with open(out, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text)
        for part, channels in parts:
            for i in range(times):
                f.write(apply_rope(part, channels, i * used) if channels and i
                        else part)


def tile_slot(path, out, size):
    """A ggsq version 4 file of one stream, not transposed."""
    with open(path, 'rb') as f:
        data = f.read()
    at = 8
    magic, version, n = struct.unpack_from('<4sII', data)
    if magic != b'qsgg' or version != 4:
        sys.exit('%s: a ggsq file of version 4 is needed' % path)
    at = 12 + 4 * n
    streams, cells = struct.unpack_from('<II', data, at)
    at += 8 + 12 * cells
    v_trans, layers, rot_k, rot_v = struct.unpack_from('<IIII', data, at)
    at += 16
    times = -(-size // len(data))
    used = cells - 1
    total = used * times
    ids = struct.unpack_from('<%di' % used, data, 24)
    with open(out, 'wb') as f:
        blob = struct.pack('<iII', -1, 1, total) + \
            struct.pack('<%di' % used, *ids) * times + struct.pack('<I', 0)
        f.write(struct.pack('<4sII', magic, version, len(blob) // 4) + blob)
        f.write(struct.pack('<II', streams, total))
        for i in range(total):
            f.write(struct.pack('<iIi', i, 1, 0))
        f.write(struct.pack('<IIII', v_trans, layers, rot_k, rot_v))
        for _ in range(2 * layers):
            kind, row = struct.unpack_from('<iQ', data, at)
            f.write(data[at:at + 12])
            for _ in range(times):
                f.write(data[at + 12:at + 12 + row * used])
            at += 12 + row * cells


def memory_of(pid):
    """Anonymous now and whole peak of a process, MiB."""
    now = peak = 0
    try:
        with open('/proc/%d/status' % pid) as f:
            for line in f:
                if line.startswith('RssAnon:'):
                    now = int(line.split()[1]) / 1024
                elif line.startswith('VmHWM:'):
                    peak = int(line.split()[1]) / 1024
    except (OSError, IndexError):
        pass
    return now, peak


def run(*arguments):
    """Anonymous and whole peak in MiB, and seconds. Not from wait4: there a
    child counts what its parent had before the exec."""
    start = time.perf_counter()
    p = subprocess.Popen([c.KVARC, *arguments])
    anonymous = whole = 0
    while p.poll() is None:
        now, peak = memory_of(p.pid)
        if peak:
            anonymous, whole = max(anonymous, now), peak
        time.sleep(.005)
    if p.returncode:
        sys.exit('%s: failed' % ' '.join(arguments))
    return anonymous, whole, time.perf_counter() - start


def same(a, b):
    return subprocess.run(['cmp', a, b]).returncode == 0


def main():
    path, _ = c.cache_path(sys.argv[1:])
    slot = c.slot_path(sys.argv[1:])
    c.machine()
    print('# MiB of anonymous memory at the peak')
    with tempfile.TemporaryDirectory() as folder:
        big, kva, back = (os.path.join(folder, n)
                          for n in ('big', 'big.kva', 'back'))
        for what, tile, source in (
                ('safetensors bf16', tile_safetensors, path),
                ('llama.cpp slot F16', tile_slot, slot)):
            tile(source, big, BYTES)
            raw = os.path.getsize(big) / 1e9
            for threads in ('1', '2'):
                for verb, args in (
                        ('pack', ('-o', kva, big)),
                        ('unpack', ('-o', back, kva))):
                    peak, whole, seconds = run(verb, '-q', '-f', '-T', threads,
                                               *args)
                    c.judge('%s %.2f GB, %s -T%s (%.1f s, resident %.0f)' % (
                        what, raw, verb, threads, seconds, whole),
                        '%.1f' % peak, '<= %d' % TARGET_MIB,
                        peak <= TARGET_MIB, 'MiB')
                if not same(big, back):
                    sys.exit('not the same after unpack')
    c.finish()


if __name__ == '__main__':
    main()
