# SPDX-License-Identifier: BSD-3-Clause
"""Bytes and seconds of replay: replay.py MODEL TEXT [TOKENS].

MODEL: a folder that transformers loads, TEXT: a file whose first tokens are taken. A cache of
TOKENS (1024) tokens, a prefill and 24 single steps, in bf16, is saved at level 1 and by replay in
the same environment, with another number of threads, and in other pieces. Each archive is loaded
and compared bit for bit. TEXT "-": random tokens.
"""
import os
import sys
import tempfile
import time

import torch
import transformers

import kvarc
import kvarc.replay

STEPS = 24


def timed(call):
    start = time.perf_counter()
    value = call()
    return value, time.perf_counter() - start


def same(a, b):
    return all(torch.equal(x.view(torch.int16), y.view(torch.int16))
               for p, q in zip(a.layers, b.layers)
               for x, y in ((p.keys, q.keys), (p.values, q.values)))


def token_ids(folder, text, vocabulary, n):
    if text == "-":
        torch.manual_seed(1)
        return torch.randint(3, vocabulary, (1, n))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with open(text, encoding="utf-8") as f:
        ids = tokenizer(f.read(n * 16), return_tensors="pt").input_ids
    return ids[:, :n]


def main(folder, text="-", n="1024"):
    n = int(n)
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ids = token_ids(folder, text, model.config.vocab_size, n)
    pieces = [n - STEPS] + [1] * STEPS
    threads = torch.get_num_threads()
    cache, first = timed(lambda: kvarc.replay.run(model, ids[0], pieces))
    raw = sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values))
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"{torch.backends.cpu.get_cpu_capability()}, {threads} threads")
    print(f"{n} tokens, {raw / n:.0f} bytes a token, computed in {first:.1f} s\n")
    print("| archive | bytes a token | save, s | load, s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as where:
        path = os.path.join(where, "x.kva")

        def row(name, **keywords):
            _, save = timed(lambda: kvarc.save(path, cache, tokens=ids, model=model, **keywords))
            replay = {"replay": model} if "replay" in keywords else {}
            back, load = timed(lambda: kvarc.load(path, config=model.config, **replay))
            if not same(cache, back):
                raise SystemExit(f"{name}: other bits")
            print(f"| {name} | {os.path.getsize(path) / n:.1f} | {save:.2f} | {load:.2f} |",
                  flush=True)

        row("level 1")
        row("replay, same pieces and threads", replay=model, schedule=pieces)
        other = 1 if threads > 1 else 2
        torch.set_num_threads(other)
        row(f"replay, {other} thread{'s' if other > 1 else ''}", replay=model, schedule=pieces)
        torch.set_num_threads(threads)
        row("replay, one piece", replay=model, schedule=[n])
        row("replay, pieces of 256", replay=model, schedule=[256] * (n // 256))


if __name__ == "__main__":
    main(*sys.argv[1:])
