# SPDX-License-Identifier: BSD-3-Clause
"""The extension kvarc._native, for cffi. setup.py adds how it is linked."""
import os

import cffi

from native_cdef import declarations
from native_library import TOP

INCLUDE = os.path.join(TOP, "include")

ffi = cffi.FFI()
ffi.cdef(declarations(INCLUDE))
ffi.set_source(
    "kvarc._native",
    '#include "kvarc.h"\n#include "kvarc/tools.h"\n#include "kvarc/blocks.h"\n'
    '#include "kvarc/canary.h"\n#include "kvarc/device.h"\n',
    include_dirs=[INCLUDE],
    py_limited_api=True,
)
