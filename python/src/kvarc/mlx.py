# SPDX-License-Identifier: BSD-3-Clause
"""Prompt caches of mlx-lm, lists of KVCache and others, as archives and from them.

    kvarc.mlx.save_prompt_cache("prompt.kva", cache)
    cache = kvarc.mlx.load_prompt_cache("prompt.kva")

The archive holds the file of mlx-lm, as that of `kvarc pack prompt.safetensors` does.
"""
from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, List, Optional

from ._import import Import, choose_installed
from ._options import Common, READER, chosen
from ._types import PathLike, PredictorLike, ProfileLike, ProfilesLike, Progress, Secret, Source
from .errors import OptionsError, of_os_error
from .reader import Reader

__all__ = ["save_prompt_cache", "load_prompt_cache"]

_NAME = "prompt.safetensors"


def save_prompt_cache(file: PathLike, cache: List[Any],
                      metadata: Optional[Dict[str, str]] = None, *, level: int = 1,
                      verify: bool = False, profile: Optional[ProfileLike] = None,
                      parity: float = 0.0, key: Optional[bytes] = None,
                      passphrase: Optional[Secret] = None, threads: Optional[int] = None,
                      memlimit: int = 0) -> int:
    """Saves what mlx_lm.models.cache.save_prompt_cache saves as an archive; returns its bytes.

    file: a path, which appears when the archive is complete. level as of kvarc.save, other options
    as of Writer. mlx-lm writes its file into a temporary folder first, and the archive is made in
    memory.
    """
    options: Dict[str, Any] = {"level": level, "verify": verify, "profile": profile,
                               "parity": parity, "key": key, "passphrase": passphrase}
    from mlx_lm.models import cache as module
    path = os.fspath(file)
    with tempfile.TemporaryDirectory(prefix="kvarc-") as folder:
        name = os.path.join(folder, _NAME)
        module.save_prompt_cache(name, cache, metadata or {})
        common = Common(threads=threads, memlimit=memlimit)
        given: Dict[str, Any] = {"file": name, "common": common}
        options = choose_installed(options, given)
        with Import(**given, profiles=options["profile"]) as im:
            data = im.pack(**options)
    part = f"{path}.{os.getpid()}.tmp"
    try:
        with open(part, "xb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except OSError as e:
        if os.path.exists(part):
            os.unlink(part)
        raise of_os_error(e) from e
    return len(data)


def load_prompt_cache(file: Source, return_metadata: bool = False, *, allow_lossy: bool = False,
                      profiles: ProfilesLike = None, predictor: Optional[PredictorLike] = None,
                      checkpoint: int = 0, request_cost: int = 0, key: Optional[bytes] = None,
                      passphrase: Optional[Secret] = None, threads: Optional[int] = None,
                      memlimit: int = 0, progress: Optional[Progress] = None) -> Any:
    """What mlx_lm.models.cache.load_prompt_cache returns of the file that an archive holds.

    file: an archive of one file that save_prompt_cache wrote, as a path or a binary file.
    Other options as of Reader. The file is unpacked byte for byte into a temporary one, which is
    removed.
    """
    options = chosen(locals(), READER)
    from mlx_lm.models import cache
    with Reader(file, **options) as reader:
        names = [name for name, _ in reader.items if name.endswith(".safetensors")]
        if len(names) != 1:
            raise OptionsError(f"the archive holds {len(names)} safetensors files: pack one that "
                               "mlx_lm.models.cache.save_prompt_cache wrote")
        content = reader.unpack(names)[names[0]]
    handle, path = tempfile.mkstemp(suffix=".safetensors")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(content)
        loaded = cache.load_prompt_cache(path, return_metadata)
        _read(loaded[0] if return_metadata else loaded)
        return loaded
    finally:
        os.unlink(path)


def _read(caches: Any) -> None:
    """Arrays of mlx are read when they are used: now, while the file is there."""
    import mlx.core as mx
    mx.eval([one.state for one in caches])
