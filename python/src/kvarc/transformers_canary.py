# SPDX-License-Identifier: BSD-3-Clause
"""Models of transformers compute the tokens of a canary."""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from transformers import cache_utils

from . import canary
from .cache import Cache
from .transformers_layers import take_layer
from .transformers_model import cache_keyword

_LEAST_IDS = 2000


def _computed(model: Any, ids: Any) -> Tuple[Cache, Dict[int, float]]:
    """The cache of a model of these tokens alone, without states, and the words that may follow
    with the logarithms of their probabilities."""
    cache = cache_utils.DynamicCache(config=model.config)
    given = torch.from_numpy(ids).to(device=model.device, dtype=torch.int64)[None]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            out = model(input_ids=given, use_cache=True, **{cache_keyword(model): cache})
    finally:
        model.train(training)
    layers = [take_layer(layer) for layer in cache.layers]
    for layer in layers:
        layer.states, layer.metadata = {}, {}
    logits = getattr(out, "logits", None)
    if logits is None:  # a model without a head
        return Cache(layers, tokens=ids[None]), {}
    best = torch.log_softmax(logits[0, -1].float(), -1).topk(canary.MOST_WORDS)
    return Cache(layers, tokens=ids[None]), dict(zip(best.indices.tolist(), best.values.tolist()))


def fingerprint(model: Any) -> Optional[str]:
    """A new one; None: this is no model that continues a text, or has few token ids."""
    config = getattr(model, "config", None)
    if config is None or not callable(model) or getattr(config, "is_encoder_decoder", False):
        return None
    vocabulary = getattr(config.get_text_config(decoder=True), "vocab_size", 0) or 0
    if vocabulary < _LEAST_IDS:
        return None
    cache, likely = _computed(model, canary.ids(vocabulary))
    return canary.record(cache, likely=likely)


def compare(recorded: str, model: Any) -> canary.Verdict:
    """What the model computes now of the tokens of a fingerprint, next to it."""
    cache, likely = _computed(model, canary.ids(recorded=recorded))
    return canary.check(recorded, cache, likely=likely)
