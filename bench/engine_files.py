#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The same real cache as each engine writes it, level by level, with zstd -3 beside it.

engine_files.py [CACHE.safetensors [PROFILE.kvp]]; the command is $KVARC. The profile is for
level 2; default: the sample's. With the Python packages mlx and mlx-lm 0.32.2, files of mlx-lm are
written by its own save_prompt_cache; all others, and those without the packages, by
tests/data/engine_writers.py, which follows the engines' sources.

Also batches of mlx-lm whose sequences begin with the same tokens, as BatchKVCache saves them: with
spare rows of zeros up to the size of its buffer. The tokens that each has alone are disjoint rows
of another real cache (smollm2-wiki-b beside the first one).

Ratios are file bytes over archive bytes, the profile not counted; each archive is unpacked and
compared. Exit status 1: a row at level 1 is below 1.5, or of a batch, whose segments are short, below
1.4 times the rows of the file over those that differ.
"""
import os
import subprocess
import sys
import tempfile

import common as c

sys.path.insert(0, os.path.join(c.TOP, 'tests', 'data'))
import engine_writers as w  # noqa: E402

TARGET, BATCH_TARGET = 1.5, 1.4
LEVELS = '0', '1', '2'


def mlx_real(cache, path, kind):
    """Writes a prompt cache with mlx-lm itself. False: it is not here."""
    try:
        import mlx.core as mx
        from mlx_lm.models import cache as mlx
    except ImportError:
        return False
    caches = []
    for k, v in cache.layers:
        made = mlx.RotatingKVCache(cache.tokens, 4) if kind == 'RotatingKVCache' else mlx.KVCache()
        k, v = (mx.array(memoryview(x).cast('H')).view(mx.bfloat16).reshape(cache.shape)
                for x in (k, v))
        made.update_and_fetch(k, v)
        if kind == 'RotatingKVCache':  # overwrites the oldest rows
            for t in range(9):
                made.update_and_fetch(k[:, :, t:t + 1], v[:, :, t:t + 1])
        caches.append(made)
    if kind == 'CacheList':  # two layers in one, as models with two attentions a layer have them
        caches = [mlx.CacheList(*caches[i:i + 2]) for i in range(0, len(caches), 2)]
    mlx.save_prompt_cache(path, caches, {'model': 'SmolLM2-135M-Instruct'})
    return True


# sequences, tokens that all begin with, tokens that the shortest and the longest has alone
BATCHES = (4, 112, 16, 16), (8, 400, 112, 112), (4, 112, 4, 16)


def batches(cache, folder):
    """As mlx_files, of batches; nothing without mlx-lm."""
    try:
        import mlx.core as mx
        from mlx_lm.models import cache as mlx
    except ImportError:
        return
    path = c.WIKI.replace('-wiki-a', '-wiki-b')
    other = w.load(path) if os.path.exists(path) else cache.part(112, cache.tokens - 112)

    def arrays(part):
        return [[mx.array(memoryview(x).cast('H')).view(mx.bfloat16).reshape(part.shape)
                 for x in layer] for layer in part.layers]
    for n, shared, least, most in BATCHES:
        if shared > cache.tokens or n * most > other.tokens:
            continue
        prefix = arrays(cache.part(0, shared))
        own = [arrays(other.part(i * most, least + i * (most - least) // (n - 1)))
               for i in range(n)]
        made = []
        for layer, first in enumerate(prefix):
            if least == most:  # the prompt of all, then what each has
                made.append(mlx.BatchKVCache([0] * n))
                made[-1].update_and_fetch(*(mx.concatenate([x] * n) for x in first))
                made[-1].update_and_fetch(*(mx.concatenate([o[layer][k] for o in own])
                                            for k in (0, 1)))
                continue
            alone = [mlx.KVCache() for _ in own]
            for one, o in zip(alone, own):
                one.update_and_fetch(*first)
                one.update_and_fetch(*o[layer])
            made.append(mlx.BatchKVCache.merge(alone))
        path = os.path.join(folder, 'batch-%d-%d.safetensors' % (n, least))
        mlx.save_prompt_cache(path, made, {'model': 'SmolLM2-135M-Instruct'})
        rows = sum(o[0][0].shape[2] for o in own) + shared
        yield ('mlx-lm 0.32.2, %d sequences, %d of %s tokens the same' %
               (n, shared, most + shared if least == most else
                '%d to %d' % (least + shared, most + shared)),
               [path], BATCH_TARGET * n * made[0].keys.shape[2] / rows)


def write(path, data):
    with open(path, 'wb') as f:
        f.write(data)
    return path


def mlx_files(cache, folder):
    """Name of the row, files, and the least ratio at level 1."""
    for kind in 'KVCache', 'RotatingKVCache', 'CacheList':
        path = os.path.join(folder, kind + '.safetensors')
        by = 'real writer'
        if not mlx_real(cache, path, kind):
            if kind == 'CacheList':
                continue
            by = 'by its source'
            ring = kind == 'RotatingKVCache'
            write(path, w.mlx_0_32(cache.rotated(9) if ring else cache, kind, cache.tokens))
        yield 'mlx-lm 0.32.2, %s (%s)' % (kind, by), [path], TARGET


def blocks(cache, size, make, folder, name):
    for first in range(0, cache.tokens, size):
        part = cache.part(first, min(size, cache.tokens - first))
        yield write(os.path.join(folder, '%s-%d' % (name, first)), make(part))


def all_files(cache, folder):
    yield from mlx_files(cache, folder)
    single = {
        'mlx-lm 0.31.3, KVCache': w.mlx_0_31(cache),
        'vLLM ExampleConnector, packed': w.vllm_folder(cache, True),
        'vLLM ExampleConnector, before': w.vllm_folder(cache, False),
        'transformers, batch of 2': w.batch(cache),
        'npz, bfloat16 of ml_dtypes': w.npz(cache),
    }
    for n, (name, data) in enumerate(single.items()):
        yield name, [write(os.path.join(folder, 'f%d' % n), data)], TARGET
    for name, make in (('oMLX, format 3', lambda x: w.omlx(x, 3)),
                       ('oMLX, format 2', lambda x: w.omlx(x, 2)), ('vmlx', w.vmlx)):
        yield name + ', blocks of 256', list(blocks(cache, 256, make, folder, name[-4:])), TARGET
    yield from batches(cache, folder)


def packed(path, folder, *options):
    """Bytes of the archive, which must bring the file back."""
    out, back = os.path.join(folder, 'a.kva'), os.path.join(folder, 'back')
    c.kvarc('pack', '-q', '-f', '-o', out, *options, path)
    c.kvarc('unpack', '-q', '-f', '-o', back, *[o for o in options if not o[1].isdigit()], out)
    with open(path, 'rb') as a, open(back, 'rb') as b:
        if a.read() != b.read():
            sys.exit('%s: not the same after unpack' % path)
    return os.path.getsize(out)


def zstd(path):
    r = subprocess.run(['zstd', '-3', '-q', '-c', path], stdout=subprocess.PIPE, check=True)
    return len(r.stdout)


def main(arguments):
    path, _ = c.cache_path(arguments)
    profile = arguments[1] if len(arguments) > 1 else c.SAMPLE + 'level2.kvp'
    cache = w.load(path)
    print('# %s: %d tokens, %d layers; profile %s' % (os.path.basename(path), cache.tokens,
                                                      len(cache.layers), os.path.basename(profile)))
    print('| engine | bytes | zstd -3 | level 0 | level 1 | level 2 |')
    print('|---|---|---|---|---|---|')
    low = False
    with tempfile.TemporaryDirectory() as folder:
        for name, files, target in all_files(cache, folder):
            size = sum(map(os.path.getsize, files))
            ratios = [size / sum(map(zstd, files))]
            for level in LEVELS:
                options = ('-' + level,) + (('--profile', profile) if level == '2' else ())
                ratios.append(size / sum(packed(f, folder, *options) for f in files))
            print('| %s | %d | %s |' % (name, size, ' | '.join('%.2fx' % r for r in ratios)),
                  flush=True)
            low |= ratios[2] < target
    return int(low)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
