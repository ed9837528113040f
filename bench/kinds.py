#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every kind of file: archives of level 1 next to the file and to `zstd -3`.

kinds.py [FOLDER]; the command is $KVARC, FOLDER has the field files (../shared/field).

Rows: field files, which may be 1 % larger than `zstd -3` makes them and have a ratio to reach;
files of tests/data and caches of one token with 1 to 130 layers, whose archives may be 200 bytes
larger than they are. Of these two the rows show the worst alone. Files of at most 4 KiB do not
count, and compressed ones neither: superblock, GEOMETRY, RESTORE, BLOB, COMMIT, INDEX and FOOTER take 500 bytes, and such a file
keeps its tensors. Each archive is unpacked and compared. Exits with 1 where a row is short.
"""
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile

import common as c

MAY_GROW, MOSTLY_FRAMES, OVER_ZSTD = 200, 4096, 1.01
LAYERS = range(1, 131)
COMPRESSED = '.kvp', '.kva', '.zst'
# What a file has to reach: of states and indexers by the coded share, of batches and beams by what
# occurs once.
RATIOS = {'batch6-identical': 9.0, 'fp8-token-head-scale': 1.291, 'llama-hybrid-idx-120': 1.15,
          'names-hf-cache-layers': 1.5, 'names-llama-names': 1.5, 'names-selfattn': 1.5,
          'names-tuple-nometa': 1.5, 'stacked-L2HTD': 1.5, 'vllm-paged-holes': 2.162}


def packed(work, path):
    """Bytes of the archive; None: it is refused."""
    out, back = os.path.join(work, 'out.kva'), os.path.join(work, 'back')
    if subprocess.run([c.KVARC, 'pack', '-q', '-f', '-o', out, path], stderr=subprocess.DEVNULL,
                      check=False).returncode not in (0, 2):  # 2: with a warning
        return None
    subprocess.run([c.KVARC, 'unpack', '-q', '-f', '-o', back, out], check=True)
    with open(path, 'rb') as x, open(back, 'rb') as y:
        if x.read() != y.read():
            sys.exit(f'{path}: not the same after unpack')
    return os.path.getsize(out)


def zstd(path):
    return len(subprocess.run(['zstd', '-3', '-c', path], stdout=subprocess.PIPE,
                              check=True).stdout)


def field(work, folder):
    for path in sorted(glob.glob(os.path.join(folder, '*.*'))):
        name, ending = os.path.splitext(os.path.basename(path))
        if ending not in ('.safetensors', '.slot', '.h5'):
            continue
        whole, other, size = os.path.getsize(path), zstd(path), packed(work, path)
        least = RATIOS.get(name, 1)
        c.judge(f'{name}: {whole} bytes, zstd -3 {other}, {whole / other:.3f}x',
                f'{size}, {whole / size:.3f}x', f'{least}x and zstd + 1 %',
                size <= OVER_ZSTD * other and whole / size >= least, '')


def worst_row(what, work, paths):
    """The file whose archive is larger than it by the most bytes."""
    worst, n = (-1 << 60, '', 0, 0), 0
    for path in paths:
        whole = os.path.getsize(path)
        size = packed(work, path) if whole > MOSTLY_FRAMES else None
        if size is not None:
            n += 1
            worst = max(worst, (size - whole, os.path.basename(path), whole, size))
    c.judge(f'{what}, {n} of them: {worst[1]}, {worst[2]} bytes', f'{worst[0]:+d}',
            f'<= {MAY_GROW}', worst[0] <= MAY_GROW, '')


def made(work):
    """Caches of the first token of a real one, its layers as often as needed."""
    for path in sorted(glob.glob(os.path.join(c.SHARED, 'kv', 'smollm2-wiki-a*'))):
        with open(path, 'rb') as f:
            head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
            data = f.read()
        rows = []
        for name in sorted(k for k in head if k != '__metadata__' and
                           len(head[k]['shape']) > 2):
            begin, end = head[name]['data_offsets']
            heads, tokens, _ = head[name]['shape'][-3:]
            part = (end - begin) // heads
            rows.append(b''.join(data[begin + i * part:begin + i * part + part // tokens]
                                 for i in range(heads)))
        shape = [1] + [heads, 1] + head[name]['shape'][-1:]
        for layers in LAYERS:
            tensors, body = {}, b''
            for i in range(layers):
                for k, kind in enumerate(('key', 'value')):
                    row = rows[(2 * i + k) % len(rows)]
                    tensors[f'layers.{i}.{kind}'] = {
                        'dtype': head[name]['dtype'], 'shape': shape,
                        'data_offsets': [len(body), len(body) + len(row)]}
                    body += row
            text = json.dumps(tensors, separators=(',', ':')).encode()
            text += b' ' * (-len(text) % 8)
            made_path = os.path.join(work, f'{head[name]["dtype"]}-{layers}.safetensors')
            with open(made_path, 'wb') as f:
                f.write(struct.pack('<Q', len(text)) + text + body)
            yield made_path


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else \
        os.path.join(os.path.dirname(c.SHARED), 'field')
    with tempfile.TemporaryDirectory() as work:
        field(work, folder)
        files = [p for p in glob.glob(os.path.join(c.TOP, 'tests', 'data', '**'), recursive=True)
                 if os.path.isfile(p) and not p.endswith(COMPRESSED)]
        worst_row('files of tests/data', work, files)
        worst_row('made caches of one token, 1 to 130 layers', work, made(work))
    sys.exit(bool(c.missed))


if __name__ == '__main__':
    main()
