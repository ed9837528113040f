# SPDX-License-Identifier: BSD-3-Clause
"""Caches that the model computes again: level 8 with the engine as its own predictor."""
from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from transformers import cache_utils

from . import _arrays, _layout, archive
from ._options import READER, chosen
from ._ranges import Range
from ._types import PredictorLike, ProfilesLike, Progress, Secret, Source
from .cache import Cache
from .errors import OptionsError, PredictorError
from .models import Predictor
from .reader import Reader
from .replay_external import Pairs, predictor_of, residual_profile
from .transformers_layers import damaged
from .transformers_model import cache_keyword, check, identity

__all__ = ["Recorder", "run", "pack_schedule", "unpack_schedule"]

LEVEL = 8
_TOKENS_MAX = 1 << 24
_THREADS_MAX = 4096


def pack_schedule(pieces: Sequence[int]) -> List[List[int]]:
    """Numbers of tokens that the model took at once, in order, as [tokens, repetitions]."""
    runs: List[List[int]] = []
    for n in pieces:
        if n < 1:
            raise ValueError(f"a piece of {n} tokens")
        if runs and runs[-1][0] == n:
            runs[-1][1] += 1
        else:
            runs.append([int(n), 1])
    return runs


def unpack_schedule(runs: Any, tokens: int) -> List[int]:
    """The pieces of pack_schedule, which must have this many tokens in all."""
    pieces: List[int] = []
    left = tokens
    for run_ in runs if isinstance(runs, list) else ():
        if not isinstance(run_, list) or [type(v) for v in run_] != [int, int] or \
                not (0 < run_[0] <= left and 0 < run_[1] <= left // run_[0]):
            raise damaged("the schedule of its replay is out of range")
        pieces += [run_[0]] * run_[1]
        left -= run_[0] * run_[1]
    if left or tokens > _TOKENS_MAX:
        raise damaged("the schedule of its replay does not have all tokens")
    return pieces


class Recorder:
    """Records how a model takes tokens while it is a context: for replay= of kvarc.save.

        with kvarc.replay.Recorder(model) as recorder:
            out = model.generate(ids, cache=cache)  # before transformers 5.24 past_key_values=
        kvarc.save("x.kva", cache, tokens=out[:, :cache.get_seq_length()], model=model,
                   replay=recorder)

    pieces: the number of tokens of each call since the cache was empty. threads: of torch then.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.pieces: List[int] = []
        self.threads = torch.get_num_threads()
        self._hook: Any = None

    def _before(self, module: Any, args: Tuple, keywords: Dict[str, Any]) -> None:
        ids = keywords.get("input_ids", args[0] if args else None)
        if ids is None:
            ids = keywords.get("inputs_embeds")
        if ids is None:
            return
        past = keywords.get("cache")  # before transformers 5.24 by the other name
        if past is None:
            past = keywords.get("past_key_values")
        if past is None or int(past.get_seq_length()) == 0:
            self.pieces.clear()
        self.pieces.append(int(ids.shape[1]))
        self.threads = torch.get_num_threads()

    def __enter__(self) -> "Recorder":
        self._hook = self.model.register_forward_pre_hook(self._before, with_kwargs=True)
        return self

    def __exit__(self, *unused: Any) -> None:
        self._hook.remove()


@contextlib.contextmanager
def _threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(model: Any, ids: Any, pieces: Sequence[int]) -> Any:
    """The DynamicCache of a model that takes ids [tokens] in these pieces."""
    ids = torch.as_tensor(np.asarray(ids, np.int64), device=model.device)[None]
    cache = cache_utils.DynamicCache(config=model.config)
    training, at, keyword = model.training, 0, cache_keyword(model)
    model.eval()
    try:
        with torch.no_grad():
            for n in pieces:
                model(input_ids=ids[:, at:at + n], use_cache=True, logits_to_keep=1,
                      **{keyword: cache})
                at += n
    finally:
        model.train(training)
    return cache


def _pairs(tensors: Sequence[Tuple[Any, Any]]) -> Tuple[Pairs, str]:
    """Keys and values [1, heads, tokens, channels] as bits [tokens, heads, channels], and their
    dtype."""
    pairs, dtypes = [], set()
    for pair in tensors:
        both = []
        for tensor in pair:
            if tensor is None or tensor.ndim != 4 or tensor.shape[0] != 1:
                raise OptionsError("replay is of one sequence with keys and values in all layers")
            bits, dtype = _arrays.as_bits(tensor)
            dtypes.add(dtype)
            both.append(bits[0].transpose(1, 0, 2))
        pairs.append((both[0], both[1]))
    if len(dtypes) != 1 or not dtypes <= {"f32", "f16", "bf16"}:
        raise OptionsError("replay is of keys and values in one dtype: f32, f16 or bf16")
    return pairs, dtypes.pop()


def _again(model: Any, ids: np.ndarray, pieces: Sequence[int], threads: int
           ) -> Tuple[Pairs, str, Predictor]:
    """What the model computes of these ids, its dtype, and what predicts it."""
    with _threads(threads):
        cache = run(model, ids, pieces)
    pairs, dtype = _pairs([(layer.keys, layer.values) for layer in cache.layers])
    known = identity(model=model)
    of = {"schedule": pack_schedule(pieces), "dtype": dtype,
          **{k: known.get(k) for k in ("config_digest", "weights_sample")}}
    digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).digest()[:16]
    return pairs, dtype, predictor_of(pairs, dtype, digest,
                                      "replay of " + known.get("model", "a model"))


def for_save(cache: Cache, replay: Union[Recorder, Any], schedule: Optional[Sequence[int]] = None
             ) -> Dict[str, Any]:
    """Options of Writer that make an archive of a cache which replay, a model or a Recorder,
    computes again; notes in the cache's metadata how. schedule: the pieces, when it is a model:
    None: all tokens at once."""
    model, threads = replay, torch.get_num_threads()
    if isinstance(replay, Recorder):
        model, threads = replay.model, replay.threads
        schedule = replay.pieces if schedule is None else schedule
    plain = all(layer.tensors.keys() == {"key", "value"} and not layer.states and
                not layer.window and not layer.cross for layer in cache.layers)
    if not plain or not cache.layers or cache.tokens is None:
        raise OptionsError("replay is of a cache with full attention in all layers, and needs "
                           "tokens=")
    pairs, dtype = _pairs([(layer.tensors["key"], layer.tensors["value"])
                           for layer in cache.layers])
    n = len(pairs[0][0])
    ids = np.asarray(cache.tokens).reshape(-1)[:n]
    if len(ids) < n:
        raise OptionsError(f"replay needs the ids of all {n} tokens, of {len(ids)} they are given: "
                           f"out[:, :{n}] of out = model.generate(...)")
    pieces = [n] if schedule is None else list(schedule)
    if sum(pieces) != n:
        raise OptionsError(f"the schedule has {sum(pieces)} tokens, the cache has {n}")
    predicted, its_dtype, predictor = _again(model, ids, pieces, threads)
    if its_dtype != dtype or predicted[0][0].shape != pairs[0][0].shape or \
            len(predicted) != len(pairs):
        raise OptionsError("the model's cache has another dtype or shape than the one to save")
    cache.metadata["replay"] = {"schedule": pack_schedule(pieces), "threads": threads}
    return {"level": LEVEL, "predictor": predictor, "embed_profile": True,
            "profile": residual_profile(pairs, predicted, dtype, LEVEL)}


def load_cache(file: Source, model: Any, *, layers: Range = None, tokens: Range = None,
               raw: bool = False, ignore: Iterable[str] = (), allow_lossy: bool = False,
               profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
               checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
               passphrase: Optional[Secret] = None, threads: Optional[int] = None,
               memlimit: int = 0, progress: Optional[Progress] = None) -> Cache:
    """What kvarc.load_cache returns of an archive of for_save, with the model. The recorded
    identity must be that of the model (ignore: as of kvarc.transformers.check).
    Raises PredictorError where the model computes other bits here."""
    reader = chosen(locals(), READER)
    with Reader(file, **reader) as r:
        found, recorded = _layout.find_json(r), r.identity
        metadata = found.get("metadata") if found else None
        if not isinstance(metadata, dict) or "replay" not in metadata:
            return archive.load_cache(file, layers=layers, tokens=tokens, raw=raw, **reader)
        check(recorded, identity(model=model), ignore)
        ids = r.ids(0)
    if ids is None:
        raise damaged("its token ids are missing")
    notes = metadata["replay"]
    threads = notes.get("threads") if isinstance(notes, dict) else None
    if type(threads) is not int or not 0 < threads <= _THREADS_MAX:
        raise damaged("the threads of its replay are out of range")
    _, _, predicted = _again(model, ids, unpack_schedule(notes.get("schedule"), len(ids)), threads)
    try:
        return archive.load_cache(file, layers=layers, tokens=tokens, raw=raw,
                                  **{**reader, "predictor": predicted})
    except PredictorError as e:
        raise _diverged(e, recorded) from e


def _diverged(e: PredictorError, recorded: Dict[str, str]) -> PredictorError:
    """The error of a replay that gave other bits than the one that the archive was made with."""
    here = {"torch_version": torch.__version__,
            "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    differs = [f"{k} was {recorded[k]}, is {v}" for k, v in here.items()
               if recorded.get(k) not in (None, v)]
    why = "; ".join(differs) or "the versions and the processor's capability are the same"
    made = PredictorError("the model computes other keys and values here than where the archive "
                          f"was made ({why}): load it there ({e})")
    made.code = e.code
    return made
