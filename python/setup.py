# SPDX-License-Identifier: BSD-3-Clause
"""Builds the package: the extension, and the command beside it."""
import os
import shutil
import sys

from setuptools import setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import native_build  # noqa: E402


class build_native(build_ext):
    """The extension for the stable ABI, and the command of the same build."""

    def finalize_options(self):
        super().finalize_options()
        self.force = True  # another build folder is no newer file

    def run(self):
        super().run()
        package = os.path.dirname(self.get_ext_fullpath("kvarc._native"))
        target = os.path.join(package, "_bin", "kvarc")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.lexists(target):
            os.unlink(target)
        command = os.path.join(native_build.BUILD, "kvarc")
        if native_build.is_static():
            shutil.copy2(command, target)
        else:
            os.symlink(command, target)


setup(
    cffi_modules=["native_build.py:ffi"],
    cmdclass={"build_ext": build_native},
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
