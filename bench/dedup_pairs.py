#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A cache stored as a difference to the cache of nearly the same text.

dedup_pairs.py MODEL TEXTS FOLDER [PROFILE.kvp]; the command is $KVARC, and $DELTA is
bench/delta (left out without it). MODEL is a folder
of make_spread.py, or the word slots: F16 slots of llama.cpp, of the Q4_1 GGUF, behind a run
with the folder (the probabilities are of that). TEXTS has wikitext2-test.txt, PROFILE is for
level 3. Writes the caches of a prompt and of edits of it into FOLDER, and keeps those that
are there.
Needs: `setup.sh FOLDER models`.

Tokens of both texts are aligned; rows of the common prefix cost nothing. Keys are compared
without their rotation, and rotated to the position of the row that is stored. Prices are
ideal code lengths of ordinals of bf16 elements: `alone`, as they are; `minus`, their
difference to the other cache modulo 2^16; `fitted`, the difference to a linear function of
the other element, with two parameters of 16 bits a channel. Elements are split into a
class (sign, binary order, two or three further bits) and plain bits below it. Classes are
coded adaptively by channel, from a prior that the tensor's channels share; what it costs to
learn them is counted, so are the prior and one bit a channel to choose the cheaper one of
alone and fitted (`best`). kvarc's rows are whole archives; `archive` is one of the aligned
rows, by $DELTA: at level 1, and predicted by the other cache.
"""
import difflib
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

import common as c

TOKENS, BATCH = 1024, 384
THETA = 100000.
HEADS, WIDTH = 3, 64
BINS = ((1, 8), (9, 32), (33, 128), (129, 1 << 30))
PRIORS = (4, 16, 64)

SYSTEM = '''You are %(name)s, the coding assistant of a small team. Today is %(date)s.
%(rules)s
'''
RULES = '''Work in small steps and test each of them. Read a file before you change it, keep to
its style, and never touch files outside of the repository. Answer briefly and in plain
English; show code only where it helps. When a command fails, read its whole output, explain
the cause in one sentence, and only then try another way. Ask before you delete anything.
Never print passwords or keys. Say so when you are not sure.'''
PARAPHRASE = '''Proceed step by step, testing as you go. Always look at files before editing
them, follow the style that is there, and leave everything outside the repository alone. Keep
replies short and simple, with code only if it is useful. If some command does not succeed,
study all that it printed, name the reason in a single sentence, and then take a different
approach. Deleting needs permission first. Secrets are never shown. Admit any doubt.'''
SENTENCE = ' Prefer the standard library to new dependencies.'
TOOLS = (('read_file', 'Reads a text file', 'path', 'of the file, from the top folder'),
         ('write_file', 'Writes a text file, and replaces what was there', 'path', 'to write'),
         ('list_folder', 'Lists the names in a folder', 'folder', 'whose names are listed'),
         ('search', 'Finds lines that match a pattern', 'pattern', 'as of grep -E'),
         ('run', 'Runs a command and returns its output', 'command', 'for the shell'),
         ('fetch', 'Downloads a page as plain text', 'url', 'of the page'),
         ('ask', 'Asks the user a question and waits', 'question', 'in one sentence'))
OTHER = '''Write a novel with me. It is set in a harbour town a hundred years ago, and its hero
keeps the lighthouse. I give the outline of a chapter, you write it, in long sentences, without
dialogue, and end each chapter with the sea. '''


def tool(name, does, argument, meaning):
    return '''{"type": "function", "function": {"name": "%s", "description": "%s.",
 "parameters": {"type": "object", "properties": {"%s": {"type": "string",
 "description": "%s"}}, "required": ["%s"]}}}
''' % (name, does, argument, meaning, argument)


def prompt(document, name='Ada', date='Monday, 3 March 2025', rules=RULES, tools=TOOLS):
    return (SYSTEM % {'name': name, 'date': date, 'rules': rules} +
            ''.join(tool(*t) for t in tools) +
            'User: summarise the article that I paste here.\n' + document)


def texts(document):
    word = document.split()[40]
    return {'base': prompt(document),
            'same text, two batches': prompt(document),
            'date': prompt(document, date='Thursday, 6 March 2025'),
            'name': prompt(document, name='Bartholomew'),
            'one sentence more': prompt(document, rules=RULES + SENTENCE),
            'tools reversed': prompt(document, tools=TOOLS[::-1]),
            'paraphrased rules': prompt(document, rules=PARAPHRASE),
            'a word of the document': prompt(document.replace(word, 'seven', 1)),
            'another prompt': OTHER + document,
            'another text': OTHER + document[5000:]}


def make(folder, model_folder, document):
    """Writes caches that are not there, and the surprisals of the base in bits."""
    import torch
    from safetensors.torch import save_file
    from make_caches import load
    from transformers import DynamicCache
    torch.set_num_threads(1)
    tokenizer, model = load(model_folder)
    for name, text in texts(document).items():
        path = os.path.join(folder, name.replace(' ', '-') + '.safetensors')
        if os.path.exists(path):
            continue
        ids = tokenizer(text, return_tensors='pt').input_ids[0][:TOKENS]
        kv = DynamicCache()
        with torch.no_grad():
            for part in ids.split(BATCH if 'batches' in name else TOKENS):
                out = model(part[None], use_cache=True, past_key_values=kv)
        if name == 'base':
            logs = out.logits[0].float().log_softmax(-1)[:-1]
            bits = -logs.gather(1, ids[1:, None])[:, 0].numpy() / np.log(2)
            np.save(os.path.join(folder, 'surprisal.npy'), bits)
        t = {'tokens': ids.int()}
        for i, layer in enumerate(kv.layers):
            t['layers.%d.key' % i] = layer.keys[0].contiguous()
            t['layers.%d.value' % i] = layer.values[0].contiguous()
        save_file(t, path)


def make_slots(folder, document):
    import make_slots as m
    wanted = [(n.replace(' ', '-') + '.slot', t) for n, t in texts(document).items()]
    if all(os.path.exists(os.path.join(folder, n)) for n, _ in wanted):
        return
    _, url = m.serve(os.path.abspath(folder), 1)
    for name, text in wanted:
        tokens = m.post(url + '/tokenize', {'content': text})['tokens'][:TOKENS]
        m.save(url, name, tokens)
    sys.stdout.flush()
    os._exit(0)                             # the server has threads that would wait


class Slot:
    """What Cache is, of an F16 slot; the rotation is of neighbouring channels."""
    plain, dtype = 8, 'f16'

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name.replace(' ', '-') + '.slot')
        with open(self.path, 'rb') as f:
            data = f.read()
        n = struct.unpack_from('<I', data, 20)[0]   # version 4: magic, version, words, -1, 1
        self.ids = np.frombuffer(data, np.int32, n, 24)
        head = struct.pack('<iQ', 1, HEADS * WIDTH * 2)  # F16, bytes of a row
        rows, at = [], data.find(head)
        while at >= 0:
            size = n * HEADS * WIDTH
            rows.append(np.frombuffer(data, np.uint16, size, at + 12).reshape(n, HEADS, WIDTH))
            at = data.find(head, at + 12 + 2 * size)
        self.layers = len(rows) // 2
        apart = np.concatenate((np.arange(0, WIDTH, 2), np.arange(1, WIDTH, 2)))
        self.kv = [(rows[i][..., apart], rows[i + self.layers]) for i in range(self.layers)]

    @staticmethod
    def value(bits):
        return bits.view(np.float16).astype(np.float64)

    @staticmethod
    def rounded(x):
        return x.astype(np.float16).view(np.uint16)


class Cache:
    """Token ids, and by layer and k or v the bf16 elements: token, head, channel."""
    plain, dtype = 5, 'bf16'                # plain: bits below the class

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name.replace(' ', '-') + '.safetensors')
        with open(self.path, 'rb') as f:
            head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
            data = f.read()

        def get(name, kind):
            t = head[name]
            return np.frombuffer(data[slice(*t['data_offsets'])], kind).reshape(t['shape'])
        self.ids = get('tokens', np.int32)
        self.layers = sum(n.endswith('.key') for n in head)
        self.kv = [[get('layers.%d.%s' % (i, x), np.uint16).transpose(1, 0, 2)
                    for x in ('key', 'value')] for i in range(self.layers)]

    @staticmethod
    def value(bits):
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    @staticmethod
    def rounded(x):
        """Bits of the nearest bf16 values."""
        b = x.astype(np.float32).view(np.uint32)
        return ((b + 0x7fff + (b >> 16 & 1)) >> 16).astype(np.uint16)


def ordinal(bits):
    """Integers in the order of the values: -0 is -1."""
    b = bits.astype(np.int32)
    return np.where(b & 0x8000, -(b & 0x7fff) - 1, b)


def turned(x, positions):
    """Keys (token, head, channel) rotated from position 0 to these."""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * THETA ** (-np.arange(half) / half)
    cos, sin, a, b = np.cos(angle), np.sin(angle), x[..., :half], x[..., half:]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def classes(n, keep):
    """Class and number of plain bits of integers."""
    m = np.abs(n)
    order = np.frexp(np.maximum(m, 1).astype(np.float64))[1] - 1
    low = np.maximum(order - keep, 0)
    top = np.where(m > 0, ((order + 1) << keep) + ((m >> low) & ((1 << keep) - 1)), 0)
    return top * 2 + (n < 0), low


def gammaln(x):
    """Stirling's series behind seven steps of the recurrence."""
    z = x + 7
    series = (z - .5) * np.log(z) - z + .5 * np.log(2 * np.pi) + 1 / (12 * z) - 1 / (360 * z ** 3)
    return series - sum(np.log(x + i) for i in range(7))


def price(top, low):
    """Bits of the elements (token, channel) with what learning costs: channel totals, and
    each element's share."""
    n = top.shape[0]
    _, k = np.unique(top, return_inverse=True)
    k = k.reshape(top.shape)
    size = k.max() + 1
    counts = np.stack([np.bincount(k[:, i], minlength=size) for i in range(k.shape[1])])
    pooled = (counts.sum(0) + .5) / (counts.sum() + .5 * size)
    costs = []
    for prior in PRIORS:
        a = prior * pooled
        costs.append(gammaln(n + prior) - gammaln(prior) -
                     (gammaln(counts + a) - gammaln(a)).sum(1))
    cost = np.min(costs, 0) / np.log(2) + size * 12 / k.shape[1]
    p = (counts + PRIORS[0] * pooled) / (n + PRIORS[0])
    each = -np.log2(p[np.arange(k.shape[1])[None], k])
    each += (cost - each.sum(0)) / n
    return cost + low.sum(0), each + low


def aligned(a, b):
    """Common prefix, and pairs of rows (of a, of b) behind it with equal tokens around."""
    n = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    match = difflib.SequenceMatcher(None, list(a[n:]), list(b[n:]), autojunk=False)
    pairs = [(n + m.a + i, n + m.b + i) for m in match.get_matching_blocks()
             if m.size > 1 for i in range(m.size)]
    return n, np.array(pairs, int).reshape(-1, 2)


def by_position(a, b):
    """As if all tokens were equal: the control for texts without relation."""
    n = min(len(a), len(b))
    return 0, np.stack((np.arange(n), np.arange(n)), 1)


def moved(kind, y, at, key):
    """The other cache's elements where the rows are that are stored."""
    if not key:
        return y
    still = (at[:, 0] == at[:, 1])[:, None, None]
    return np.where(still, y, kind.rounded(turned(kind.value(y), at[:, 1] - at[:, 0])))


def delta_archive(base, cache, pairs, folder):
    """Bits an element of the aligned rows, at level 1 and predicted by the other cache."""
    if 'DELTA' not in os.environ or not len(pairs):
        return []
    paths = [os.path.join(folder, n) for n in ('rows', 'guess')]
    with open(paths[0], 'wb') as rows, open(paths[1], 'wb') as guess:
        for ours, other in zip(cache.kv, base.kv):
            for x, y, key in zip(ours, other, (1, 0)):
                rows.write(x[pairs[:, 1]].tobytes())
                guess.write(moved(base, y[pairs[:, 0]], pairs, key).tobytes())
    out = subprocess.run([os.environ['DELTA'], *map(str, (len(pairs), base.layers, HEADS, WIDTH)),
                          base.dtype, *paths], stdout=subprocess.PIPE, check=True)
    return [float(x) for x in out.stdout.split()]


def of_tensor(kind, x, y, at, key):
    """Channel totals and elements' prices, by way to store x with y beside it."""
    target, other = kind.value(x), kind.value(y)
    plain, y = x.reshape(len(x), -1), moved(kind, y, at, key).reshape(len(x), -1)
    if key:
        target = turned(target, -at[:, 1])
        other = turned(other, -at[:, 0])
    power = ((other - other.mean(0)) ** 2).mean(0) + 1e-12
    slope = ((other - other.mean(0)) * (target - target.mean(0))).mean(0) / power
    slope = slope.astype(np.float16).astype(np.float64)
    shift = (target - slope * other).mean(0).astype(np.float16).astype(np.float64)
    same = plain == y
    out = {'alone': price(plain >> kind.plain, np.full(plain.shape, kind.plain))}
    fitted = slope * other + shift
    fitted = kind.rounded(turned(fitted, at[:, 1]) if key else fitted).reshape(plain.shape)
    for name, guess in (('minus', y), ('fitted', fitted)):
        rest = (ordinal(plain) - ordinal(guess)).astype(np.int16).astype(np.int32)
        out[name] = price(*classes(rest, 2))
    out['fitted'] = (out['fitted'][0] + 32, out['fitted'][1] + 32 / len(x))
    alone, fitted = out['alone'], out['fitted']
    better = fitted[0] < alone[0]
    out['best'] = (np.where(better, fitted[0], alone[0]) + 1,
                   np.where(better, fitted[1], alone[1]) + 1 / len(x))
    return out, same.mean()


def compare(base, cache, pairs, behind):
    """Bits an element by way and k or v, those of `best` by distance, share equal."""
    ways, bins, equal = {}, np.zeros((len(BINS), 2)), [0, 0]
    for layer in range(base.layers):
        for key in (1, 0):
            x, y = cache.kv[layer][1 - key][pairs[:, 1]], base.kv[layer][1 - key][pairs[:, 0]]
            out, same = of_tensor(cache, x, y, pairs, key)
            equal[1 - key] += same / base.layers
            for way, (total, each) in out.items():
                ways.setdefault(way, [0, 0])[1 - key] += total.sum() / x.size / base.layers
            for i, (low, high) in enumerate(BINS):
                some = (behind >= low) & (behind <= high)
                bins[i] += out['best'][1][some].sum(), some.sum() * out['best'][1].shape[1]
    return ways, bins, equal


def archives(path, folder, profile):
    """Bits an element of kvarc's levels 1, 2 and 3, where a profile is given."""
    levels = [('-1',), ('-2',)] + ([('-3', '--profile', profile)] if profile else [])
    return [c.packed_bits(path, folder, '-T', '1', *options) for options in levels]


def show(name, base, cache, surprisal, kvarc_bits, folder):
    """Prints two rows; returns the trie metric of Definition 2 and the best price."""
    control = name == 'another text'
    n, pairs = (by_position if control else aligned)(base.ids, cache.ids)
    if name.startswith('same text'):
        pairs = by_position(base.ids, cache.ids)[1][BATCH:]  # the second batch
    distance = surprisal[:max(n - 1, 0)].sum()
    ways, bins, equal = compare(base, cache, pairs, pairs[:, 1] - n + 1)
    mean = {way: sum(b) / 2 for way, b in ways.items()}
    print('%-24s %5d %5d %7.0f  %s  %4.1f %%  %s' %
          (name, n, len(pairs), distance,
           '  '.join('%5.2f (%5.2f %5.2f)' % (mean[w], *ways[w]) for w in ways),
           50 * sum(equal), ' '.join('%5.2f' % (b / m) if m else '    -' for b, m in bins)))
    archive = delta_archive(base, cache, pairs, folder)
    print('%-24s kvarc %s; archive %s' % ('', ' '.join('-%d %.2f' % (i + 1, b)
                                                       for i, b in enumerate(kvarc_bits)),
                                          ' '.join('%.2f' % b for b in archive)), flush=True)
    return float(distance), float(mean['best'])


def rank_correlation(pairs):
    x, y = ([sum((w < v) + (w <= v) for w in all) for v in all] for all in zip(*pairs))
    return np.corrcoef(x, y)[0, 1]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    model, data, folder = sys.argv[1:4]
    profile = sys.argv[4] if len(sys.argv) > 4 else None
    os.makedirs(folder, exist_ok=True)
    document = c.text(data, 'test')[2000:14000]
    kind = Slot if model == 'slots' else Cache
    if kind is Slot:
        make_slots(folder, document)
    else:
        make(folder, model, document)
    surprisal = np.load(os.path.join(folder, 'surprisal.npy'))
    base = kind(folder, 'base')
    c.machine()
    print('%-24s %5s %5s %7s  %s' % ('bits an element (K V)', 'same', 'align', 'trie d',
                                     'alone, minus, fitted, best; equal; best by distance ' +
                                     ' '.join('%d' % b[0] for b in BINS)))
    pairs = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for name in list(texts(document))[1:]:
            cache = kind(folder, name)
            pairs.append(show(name, base, cache, surprisal,
                              archives(cache.path, scratch, profile), scratch))
    print('rank correlation of the trie metric and the price: %.2f, of edits alone %.2f' %
          (rank_correlation(pairs[1:]), rank_correlation(pairs[1:-2])))


if __name__ == '__main__':
    main()
