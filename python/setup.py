# SPDX-License-Identifier: BSD-3-Clause
"""Builds the package: the extension, and the command, which is installed among the scripts.

The package builds the library itself (build_library.sh, below build/) and has all of it inside.
These variables of the environment change that:

KVARC_CONFIGURE  more words for configure, such as "--without-hiredis".
KVARC_BUILD      A build folder of the library (an absolute path), which is used instead. Was it
                 configured with --disable-shared (build_static.sh: a wheel), its libraries are
                 linked statically. Otherwise the extension loads the shared ones from that
                 folder: for work on the tree.
KVARC_SYSTEM     With 1, and KVARC_BUILD: for the package of a distribution. The extension needs
                 libkvarc and the others by their names, without a path, and the command is no part
                 of the package: `python -m kvarc` finds it on PATH. debian/rules of
                 python3-kvarc has
                     export KVARC_SYSTEM=1
                     export KVARC_BUILD=$(CURDIR)/build
                 and calls, with Debian's setuptools and cffi,
                     dh_auto_build --buildsystem=pybuild --sourcedirectory=python
                     dh_auto_install --buildsystem=pybuild --sourcedirectory=python
                 where dh_shlibdeps finds the libraries, and the package depends on kvarc.
"""
import os
import shutil
import sys

from setuptools import setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from distutils.command.build_scripts import build_scripts  # that of setuptools

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import native_library  # noqa: E402


class build_checked(build):
    """What is missing is said before anything is built."""

    def run(self):
        native_library.check()
        super().run()


class build_native(build_ext):
    """The extension for the stable ABI; in a tree for development, the command beside it, too."""

    def finalize_options(self):
        super().finalize_options()
        self.force = True  # another build folder is no newer file

    def pre_run(self, extension, _):
        """Called by cffi before it writes the extension's source."""
        library = native_library.build_folder(os.path.join(self.build_temp, "library"))
        self.command = os.path.join(library, "kvarc")
        self.is_linked = not native_library.is_static(library)
        extension.extra_link_args = native_library.link_arguments(library)
        profiles = native_library.profile_folder(library)
        extension.define_macros.append(("KVPY_PROFILE_DIR", f'"{profiles}"'))

    def run(self):
        super().run()
        if not self.inplace or native_library.IS_SYSTEM:
            return
        package = os.path.dirname(self.get_ext_fullpath("kvarc._native"))
        target = os.path.join(package, "_bin", "kvarc")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.lexists(target):
            os.unlink(target)
        (os.symlink if self.is_linked else shutil.copy2)(self.command, target)


class build_command(build_scripts):
    """The command itself as a script: no Python starts first."""

    def get_source_files(self):
        return []

    def run(self):
        self.run_command("build_ext")
        os.makedirs(self.build_dir, exist_ok=True)
        shutil.copy2(self.get_finalized_command("build_ext").command,
                     os.path.join(self.build_dir, "kvarc"))


if not native_library.can_describe():
    native_library.check()
setup(
    # here, as setuptools before 77 refuses in pyproject.toml what newer ones ask for
    license="BSD-3-Clause",
    cffi_modules=["native_build.py:ffi"],
    scripts=[] if native_library.IS_SYSTEM else ["kvarc"],
    cmdclass={"build": build_checked, "build_ext": build_native, "build_scripts": build_command},
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
