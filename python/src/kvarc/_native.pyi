# SPDX-License-Identifier: BSD-3-Clause
"""The C library as cffi has it: native_build.py makes it of the public headers."""
from typing import Any

ffi: Any
lib: Any
