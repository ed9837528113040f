# SPDX-License-Identifier: BSD-3-Clause
"""What a model of transformers is, as pairs of an identity, and whether it is the same one."""
from __future__ import annotations

import hashlib
import inspect
from typing import Any, Dict, Iterable, Optional

from ._model_config import digest_of, text_of
from .errors import OptionsError

# Keys of the identity, and their words in messages.
CHECKED = {"model": "name", "revision": "revision", "model_dtype": "dtype",
           "attention": "attention implementation", "rope": "RoPE",
           "config_digest": "configuration", "weights_sample": "weights"}
_SAMPLES = 64


def _weights_sample(model: Any) -> str:
    """A digest of the names, shapes and some elements of all weights: other checkpoints of
    one architecture have another one. It reads next to nothing."""
    import torch
    h = hashlib.sha256()
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            h.update(f"{name} {p.dtype} {tuple(p.shape)};".encode())
            flat = p.detach().reshape(-1)
            step = max(flat.numel() // _SAMPLES, 1)
            h.update(flat[::step][:_SAMPLES].cpu().contiguous().view(torch.uint8).numpy().data)
    return h.hexdigest()[:32]


def identity(config: Any = None, model: Any = None) -> Dict[str, str]:
    """Pairs that say which model a cache is of. config: of transformers; model: whose config is
    used, and of whose weights a sample is taken."""
    if config is None:
        config = getattr(model, "config", None)
    if config is None:
        return {}
    text = config.get_text_config(decoder=True)
    dtype = getattr(model, "dtype", None) or getattr(text, "dtype", None)
    name = getattr(config, "_name_or_path", "") or getattr(text, "_name_or_path", "")
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None)
    pairs = {
        "model": str(name).rstrip("/").rsplit("/", 1)[-1] if str(name).startswith(("/", "."))
        else str(name),
        "revision": getattr(config, "_commit_hash", None),
        "model_type": getattr(text, "model_type", ""),
        "model_dtype": str(dtype).removeprefix("torch.") if dtype else "",
        "attention": getattr(text, "_attn_implementation", None),
        "rope": text_of(rope) if rope else "",
        "config_digest": digest_of(text.to_dict()),
    }
    if model is not None and hasattr(model, "named_parameters"):
        pairs["weights_sample"] = _weights_sample(model)
    return {k: str(v) for k, v in pairs.items() if v}


def check(recorded: Dict[str, str], pairs: Dict[str, str], ignore: Iterable[str] = ()) -> None:
    """Raises OptionsError unless all that both have is equal. ignore: keys of the identity that
    may differ."""
    ignore = frozenset([ignore] if isinstance(ignore, str) else ignore)
    unknown = ignore - frozenset(CHECKED)
    if unknown:
        raise ValueError(f"ignore={sorted(unknown)[0]!r} is not one of {', '.join(CHECKED)}")
    for key, word in CHECKED.items():
        was, now = recorded.get(key), pairs.get(key)
        if key not in ignore and was and now and was != now:
            raise OptionsError(f"the cache is of another model: its {word} was {was}, and is "
                               f"{now} here; use that model, or ignore=({key!r},)")


def cache_keyword(model: Any) -> str:
    """The keyword of a model's calls that takes a cache: "cache", before transformers 5.24
    "past_key_values"."""
    forward = inspect.signature(getattr(model, "forward", model))
    return "cache" if "cache" in forward.parameters else "past_key_values"


def environment(model: Optional[Any] = None) -> Dict[str, str]:
    """What results of a model's arithmetic may depend on, besides the model: information only."""
    import torch
    import transformers
    pairs = {"engine": "transformers", "engine_version": transformers.__version__,
             "torch_version": torch.__version__,
             "cpu_capability": torch.backends.cpu.get_cpu_capability(),
             "threads": str(torch.get_num_threads())}
    device = getattr(model, "device", None)
    if device is not None:
        pairs["device"] = str(device)
    return pairs
