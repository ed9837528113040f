#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sizes next to other compressors, on the same bytes in one run.

ratios.py [CACHE.safetensors [SLOT]]; the command is $KVARC.

A bf16 cache: archives count everything (the whole .kva file), the others get
the tensors alone. A llama.cpp F16 slot: everybody gets the whole file.
"""
import os
import sys
import tempfile

import common as c


def archive(path, level, folder):
    out = os.path.join(folder, 'a.kva')
    back = os.path.join(folder, 'back')
    c.kvarc('pack', '-q', '-f', '-%d' % level, '-o', out, path)
    c.kvarc('unpack', '-q', '-f', '-o', back, out)
    with open(path, 'rb') as a, open(back, 'rb') as b:
        if a.read() != b.read():
            sys.exit('%s: not the same after unpack' % path)
    return os.path.getsize(out)


def peer(pair, raw):
    packed = pair[0](bytearray(raw))
    if bytes(pair[1](packed)) != raw:
        sys.exit('a peer lost data')
    return len(packed)


def main():
    path, judged = c.cache_path(sys.argv[1:])
    slot = c.slot_path(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        raw = c.tensors(path)
        n = len(raw) // 2
        print('# bits per element of %s, %d elements' % (
            os.path.basename(path), n))
        for name, pair in (('zstd -3', c.peer_zstd(3)),
                           ('zstd -19', c.peer_zstd(19)),
                           ('shuffle + zstd -3', c.peer_shuffle_zstd(3)),
                           ('shuffle + zstd -19', c.peer_shuffle_zstd(19)),
                           ('pcodec (u16)', c.peer_pcodec('<u2')),
                           ('ZipNN bfloat16', c.peer_zipnn('bfloat16'))):
            c.judge(name, '%.3f' % (peer(pair, raw) * 8 / n), '', None, 'bits')
        for level, target in ((0, 10.60), (1, 10.27)):
            bits = archive(path, level, folder) * 8 / n
            c.judge('kvarc level %d' % level, '%.3f' % bits,
                    '<= %.2f' % target if judged else '',
                    bits <= target if judged else None, 'bits')

        with open(slot, 'rb') as f:
            raw = f.read()
        print('# bytes of %s, F16, %d bytes' % (os.path.basename(slot),
                                                len(raw)))
        best = []
        for name, pair, rival in (
                ('zstd -3', c.peer_zstd(3), False),
                ('shuffle + zstd -3', c.peer_shuffle_zstd(3), True),
                ('shuffle + zstd -19', c.peer_shuffle_zstd(19), True),
                ('pcodec (f16)', c.peer_pcodec('<f2'), True),
                ('pcodec (u16)', c.peer_pcodec('<u2'), True),
                ('ZipNN float16', c.peer_zipnn('float16'), True)):
            try:
                size = peer(pair, raw)
            except SystemExit:
                c.judge(name, 'loses data', '', None)
                continue
            if rival:
                best.append(size)
            c.judge(name, '%d' % size, '', None, 'bytes')
        for level in (0, 1):
            size = archive(slot, level, folder)
            # the file that people get is judged: the default level
            c.judge('kvarc level %d' % level, '%d' % size,
                    '< %d' % min(best) if level else '',
                    size < min(best) if level else None, 'bytes')
    c.finish()


if __name__ == '__main__':
    main()
