# SPDX-License-Identifier: BSD-3-Clause
"""What of a model's configuration changes the meaning of its cache, as text and as a digest."""
from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Dict, Mapping, Optional, Union

ModelConfig = Union[None, str, "os.PathLike[str]", Mapping[str, Any]]

# Members of a configuration that do not change what a cache means.
_IGNORED = frozenset((
    "_name_or_path", "_commit_hash", "transformers_version", "architectures", "use_cache",
    "torch_dtype", "dtype", "output_attentions", "output_hidden_states", "return_dict",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "id2label",
    "label2id", "problem_type", "finetuning_task", "tokenizer_class", "chunk_size_feed_forward",
    "is_encoder_decoder", "initializer_range", "attention_dropout", "hidden_dropout",
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "pretraining_tp", "torchscript",
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if k not in _IGNORED}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def text_of(value: Any) -> str:
    """Members of a configuration as JSON, the same for equal ones."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def digest_of(config: Mapping[str, Any]) -> str:
    """32 hex digits of a configuration: RoPE, heads, quantisation and the rest."""
    return hashlib.sha256(text_of(config).encode()).hexdigest()[:32]


def _read(path: str) -> Dict[str, Any]:
    """The configuration in a file, or in config.json of a folder."""
    name = os.path.join(path, "config.json") if os.path.isdir(path) else path
    try:
        with open(name, encoding="utf-8") as f:
            found = json.load(f)
    except (OSError, ValueError) as e:
        raise ValueError(f"{name}: is no configuration of a model: {e}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name}: is no configuration of a model: no JSON object")
    return found


def _downloaded(model: str) -> Optional[str]:
    """The config.json of a model of the Hugging Face hub that is on this host; nothing is
    fetched."""
    try:
        from huggingface_hub import try_to_load_from_cache
        path = try_to_load_from_cache(model, "config.json")
    except (ImportError, ValueError):
        return None
    return path if isinstance(path, str) else None


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Dict[str, Any]:
    """base with the members of over; objects in both are merged."""
    out = dict(base)
    for key, value in over.items():
        have = out.get(key)
        out[key] = _merged(have, value) \
            if isinstance(have, Mapping) and isinstance(value, Mapping) else value
    return out


def find(model: str, given: ModelConfig = None) -> Optional[Dict[str, Any]]:
    """The configuration of a model, by its name or folder, or None: it is not on this host.

    given: its file or folder; or members that replace those which are found. Raises ValueError for
    a file that is no configuration.
    """
    if given is not None and not isinstance(given, Mapping):
        return _read(os.fspath(given))
    path = model if os.path.isfile(os.path.join(model, "config.json")) else _downloaded(model)
    found = _read(path) if path else None
    return found if given is None else _merged(found or {}, given)
