#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Predictions that do not see the token whose keys and values they are for.

blind.py MODEL CALIBRATION TEST [POSITIONS]

MODEL is a folder with config.json and safetensors, CALIBRATION a folder of its caches
(*.safetensors but test-*), TEST one cache; the first POSITIONS (256) of TEST are
measured. Nothing is packed: rows are ideal code lengths of the stored bf16 elements,
the same price for all, for a decoder that knows the tokens and elements before:

  nothing          the mean of a channel
  top-k            the k likeliest next tokens, run against the stored cache, mixed by
                   their renormalised probabilities
  linear, expected linear in the expected embedding, a matrix for each layer
  linear, token    the same of the token's embedding, which is seen
  model            the model in fp32, which sees the token: what levels 4 to 7 build on

"As it is" takes the prediction for the mean; "fitted" has a slope and an offset for
each channel. Fits are of some caches, slopes and scales of another. Then what tokens
cost: in the model's own distribution and with zstd.
"""
import math
import sys
import time

import common as c
from models import calibration

FIT_CACHES = 7               # and one for slopes and scales
CANDIDATES = (1, 4, 16)
CHUNK = 16                   # positions of a pass over candidates
# Of the price: normal distributions, wide ones for what is rare.
MIXTURE = ((.90, 1), (.07, 2.5), (.03, 8))
SHRINK = (1, .8, .64, .5, .4)
LEVELS = ((5, 3.6), (6, 3.1), (7, 2.8))     # bits per element, about
SEGMENT = 256


class Model:
    def __init__(self, folder):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch = torch
        self.lm = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.embedding = self.lm.get_input_embeddings().weight.data

    def angles(self, n):
        """cos and sin of n positions, for keys by position, head, channel."""
        at = self.torch.arange(n)[None]
        cos, sin = self.lm.model.rotary_emb(self.embedding, at)
        return cos[0][:, None], sin[0][:, None]

    def turned(self, kv, way):
        """By layer, k or v, position: keys with their rotation (way 1) or without (-1)."""
        cos, sin = self.angles(kv.shape[2])
        k = kv[:, 0].unflatten(-1, (-1, cos.shape[-1]))
        half = k.shape[-1] // 2
        other = self.torch.cat((-k[..., half:], k[..., :half]), -1)
        out = kv.clone()
        out[:, 0] = (k * cos + way * other * sin).flatten(-2)
        return out

    def flat(self, layers, first=0):
        """Layer, key or value, position, channel of what transformers keeps."""
        return self.torch.stack([
            self.torch.stack([x[0, :, first:].transpose(0, 1).flatten(1).float()
                              for x in (y.keys, y.values)]) for y in layers])

    def cache(self, path):
        from safetensors.torch import load_file
        t = load_file(path)
        kv = [self.torch.stack([t['layers.%d.%s' % (i, x)].transpose(0, 1).flatten(1)
                                .float() for x in ('key', 'value')])
              for i in range(self.lm.config.num_hidden_layers)]
        return t['tokens'].long(), self.torch.stack(kv)

    def run(self, ids):
        """Its own keys and values, and log p of the next tokens."""
        out = self.lm(ids[None], use_cache=True)
        return self.flat(out.past_key_values.layers), out.logits[0].log_softmax(-1)

    def candidates(self, kv, at, ids):
        """Keys and values of candidates ids[i] at position at + i, each of which sees
        the stored cache before it and itself."""
        from transformers import DynamicCache
        torch, (n, k) = self.torch, ids.shape
        end = at + n - 1
        past, width = DynamicCache(), self.lm.config.head_dim
        for layer in range(kv.shape[0]):
            past.update(*(x[:end].unflatten(-1, (-1, width)).transpose(0, 1)[None]
                          for x in kv[layer]), layer)
        positions = torch.arange(at, at + n).repeat_interleave(k)
        sees = torch.cat((torch.arange(end)[None] < positions[:, None],
                          torch.eye(n * k, dtype=torch.bool)), 1)
        mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
        out = self.lm.model(ids.reshape(1, -1), past_key_values=past, use_cache=True,
                            position_ids=positions[None], attention_mask=mask[None, None])
        new = self.flat(out.past_key_values.layers, end)
        return new.unflatten(2, (n, k))


def expected(m, kv, logs, n):
    """Of the likeliest tokens: by how many, from position 1 to n - 1."""
    out = {k: [] for k in CANDIDATES}
    for at in range(1, n, CHUNK):
        some = min(CHUNK, n - at)
        top = logs[at - 1:at - 1 + some].topk(max(CANDIDATES))
        new = m.candidates(kv, at, top.indices)
        for k in CANDIDATES:
            p = top.values[:, :k].softmax(-1)
            out[k].append((new[..., :k, :] * p[..., None]).sum(-2))
    return {k: m.torch.cat(v, 2) for k, v in out.items()}


class Linear:
    """Keys (not rotated) and values of all layers, linear in a vector."""
    def __init__(self, torch):
        self.torch, self.xx, self.xy = torch, 0, 0

    def with_one(self, x):
        return self.torch.cat((x, self.torch.ones(len(x), 1)), 1).double()

    def add(self, x, kv):
        x = self.with_one(x)
        self.xx = self.xx + x.T @ x
        self.xy = self.xy + x.T @ kv.permute(2, 0, 1, 3).flatten(1).double()

    def solve(self):
        ridge = 1e-3 * self.torch.diag(self.xx.diagonal()) + 1e-9
        self.matrix = self.torch.linalg.solve(self.xx + ridge, self.xy)

    def predict(self, x, shape):
        y = (self.with_one(x) @ self.matrix).float()
        return y.unflatten(1, (shape[0], 2, shape[3])).permute(1, 2, 0, 3)


def fit(m, paths):
    """Means and linear predictors of some caches."""
    mean, of_expected, of_token = 0, Linear(m.torch), Linear(m.torch)
    for path in paths:
        ids, kv = m.cache(path)
        kv = m.turned(kv, -1)
        mean = mean + kv.mean(2, keepdim=True) / len(paths)
        p = m.run(ids)[1][:-1].exp()
        of_expected.add(p @ m.embedding, kv[:, :, 1:])
        of_token.add(m.embedding[ids], kv)
    of_expected.solve()
    of_token.solve()
    return mean, of_expected, of_token


def predictions(m, fitted, ids, kv, n):
    """What is there, the rows' predictions from position 1 to n - 1, and log p."""
    mean, of_expected, of_token = fitted
    own, logs = m.run(ids)

    def stored(x):
        return m.turned(m.torch.cat((x[:, :, :1], x), 2), 1)[:, :, 1:]
    some = kv[:, :, 1:n]
    rows = {'nothing': stored(mean.expand_as(some))}
    top = expected(m, kv, logs, n)
    for k in CANDIDATES:
        rows['top-%d' % k] = top[k]
    rows['linear, expected'] = stored(of_expected.predict(
        logs[:n - 1].exp() @ m.embedding, some.shape))
    rows['linear, token'] = stored(of_token.predict(m.embedding[ids[1:n]], some.shape))
    rows['model'] = own[:, :, 1:n]
    return some, rows, logs


def price(torch, x, mean, scale):
    """Bits of bf16 elements, in the mixture around a mean."""
    bits = x.bfloat16().view(torch.int16)
    up, down = ((bits + i).view(torch.bfloat16).float() for i in (1, -1))
    zero = x == 0
    up, down = (torch.where(zero, torch.full_like(x, s * 1e-38), v)
                for s, v in ((1, up), (-1, down)))
    ends = torch.stack(((x + up) / 2 - mean, (x + down) / 2 - mean)).double()
    high, low = ends.amax(0), ends.amin(0)
    flip = low + high > 0                           # exact in the tails
    low, high = torch.where(flip, -high, low), torch.where(flip, -low, high)
    p = sum(w * .5 * (torch.erfc(-high / (s * scale * 2 ** .5)) -
                      torch.erfc(-low / (s * scale * 2 ** .5))) for w, s in MIXTURE)
    return -p.clamp_min(1e-30).log2()


def measure(torch, seen, guess, test, test_guess, slopes):
    """Bits per element of keys and of values; slopes and scales of `seen`."""
    bits = torch.zeros(seen.shape[0], 2)
    for i in range(seen.shape[0]):
        x, g, y, h = seen[i], guess[i], test[i], test_guess[i]
        if slopes:
            around = g - g.mean(1, keepdim=True)
            power = (around ** 2).mean(1, keepdim=True) + 1e-8
            slope = (around * x).mean(1, keepdim=True) / power
            offset = (x - slope * g).mean(1, keepdim=True)
            g, h = slope * g + offset, slope * h + offset
        scale = ((x - g) ** 2).mean(1, keepdim=True).sqrt().clamp_min(1e-6)
        some = slice(0, None, max(1, x.shape[1] // 128))
        cost = torch.stack([price(torch, x[:, some], g[:, some], scale * s).mean(1)
                            for s in SHRINK])
        best = torch.tensor(SHRINK)[cost.argmin(0)][:, None]
        bits[i] = price(torch, y, h, scale * best).mean((1, 2))
    return bits.mean(0).tolist()


def tokens(ids, logs, elements):
    def packed(step):
        parts = (ids[i:i + step].int().numpy() for i in range(0, len(ids), step))
        return sum(len(c.peer_zstd(19)[0](x.tobytes())) for x in parts) * 8 / len(ids)
    zstd = packed(SEGMENT)
    own = (-logs[:-1].gather(1, ids[1:, None]).sum().item() / math.log(2) +
           math.log2(logs.shape[1])) / len(ids)
    print('tokens, bits each: model %.2f, zstd -19 of segments of %d %.2f, of all %.2f' %
          (own, SEGMENT, zstd, packed(len(ids))))
    for level, bits in LEVELS:
        print('  of a token at level %d (%.1f bits an element): zstd %.3f %%, saved %.3f %%' %
              (level, bits, *(x / bits / elements * 100 for x in (zstd, zstd - own))))


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    m = Model(sys.argv[1])
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 256
    c.machine()
    start = time.process_time()
    paths = calibration(sys.argv[2])[:FIT_CACHES + 1]
    with m.torch.inference_mode():
        fitted = fit(m, paths[:-1])
        seen, guesses, _ = predictions(m, fitted, *m.cache(paths[-1]), n)
        ids, kv = m.cache(sys.argv[3])
        test, test_guesses, logs = predictions(m, fitted, ids, kv, n)
        print('# positions 1 to %d, %d caches fitted' % (n - 1, len(paths) - 1))
        print('%-18s %7s  %-20s  %s' % ('bits per element', 'passes', 'as it is (K, V)',
                                        'fitted (K, V)'))
        for name in guesses:
            passes = 0 if name in ('nothing', 'linear, token') else \
                1 + int(name[4:]) if name.startswith('top-') else 1
            both = [measure(m.torch, seen, guesses[name], test, test_guesses[name], slopes)
                    for slopes in (False, True)]
            print('%-18s %7d  %s' % (name, passes, '  '.join(
                '%.3f (%.3f, %.3f)' % (sum(b) / 2, *b) for b in both)), flush=True)
        tokens(ids, logs, kv[:, :, 0].numel())
    print('# %.1f processor minutes' % ((time.process_time() - start) / 60))


if __name__ == '__main__':
    main()
