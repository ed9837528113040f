# SPDX-License-Identifier: BSD-3-Clause
"""Five mistakes that `mypy --strict` finds, each in a line with its code; it is never run."""
from __future__ import annotations

from typing import Any, List, Tuple

import numpy as np

import kvarc

Pairs = List[Tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


def wrong_keyword(cache: Pairs) -> None:
    kvarc.save("a.kva", cache, lvl=3)  # expect: call-arg


def wrong_type(cache: Pairs) -> None:
    kvarc.save("a.kva", cache, level="fast")  # expect: arg-type


def result_that_may_be_none(reader: kvarc.Reader) -> int:
    return int(reader.ids()[0])  # expect: index


def wrong_attribute(reader: kvarc.Reader) -> None:
    reader.reed()  # expect: attr-defined


def wrong_return_type() -> int:
    return kvarc.info("a.kva")  # expect: return-value
