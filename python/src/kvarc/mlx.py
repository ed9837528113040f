# SPDX-License-Identifier: BSD-3-Clause
"""Prompt caches of mlx-lm from archives: `kvarc pack prompt.safetensors`, and load it here."""
from __future__ import annotations

import os
import tempfile
from typing import Any, Optional

from ._options import READER, chosen
from ._types import PredictorLike, ProfilesLike, Progress, Secret, Source
from .errors import OptionsError
from .reader import Reader

__all__ = ["load_prompt_cache"]


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
