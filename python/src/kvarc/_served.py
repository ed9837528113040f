# SPDX-License-Identifier: BSD-3-Clause
"""What the records of a serving engine are of, as a part of their names."""
from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from typing import Tuple

from . import _model_config
from ._model_config import ModelConfig

_log = logging.getLogger("kvarc.serving")


def config_of(model: str, given: ModelConfig = None) -> str:
    """The digest of a model's configuration (RoPE, heads, quantisation), as of _model_config.find;
    "" with a warning where it is not known."""
    found = _model_config.find(model, given)
    if found is None:
        _log.warning("%s: its configuration is not on this host: without the option model_config "
                     "records do not distinguish other RoPE settings or quantisations of this name",
                     model)
        return ""
    return _model_config.digest_of(found)


@dataclasses.dataclass(frozen=True)
class Served:
    """What the records of an engine are of. Records of two engines have equal names where all of
    this is equal, and never else: bytes of another layout, rank, dtype or RoPE setting are misses.

    config: as of config_of. layout: order and extents of the axes of a block. parallel: rank and
    size of each kind of parallelism.
    """

    engine: str
    model: str
    config: str
    layout: str
    dtype: str
    parallel: Tuple[Tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """32 hex digits of all of it."""
        return hashlib.sha256(json.dumps(dataclasses.astuple(self)).encode()).hexdigest()[:32]

    def name(self, *block: str) -> str:
        """The name of a block; an @ of a part is written as %40."""
        parts = (self.engine, self.model, self.digest, *block)
        return "@".join(part.replace("%", "%25").replace("@", "%40") for part in parts)
