# SPDX-License-Identifier: BSD-3-Clause
# What makes packages (packaging/README.md).
EXTRA_DIST += packaging/README.md packaging/build packaging/musl.sh packaging/check_deb.sh \
	packaging/kvarc.spec packaging/PKGBUILD packaging/kvarc.rb packaging/flake.nix \
	packaging/package.nix packaging/guix.scm packaging/conda/recipe.yaml \
	packaging/vcpkg/portfile.cmake packaging/vcpkg/vcpkg.json
EXTRA_DIST += packaging/debian/changelog packaging/debian/control packaging/debian/copyright \
	packaging/debian/rules packaging/debian/source/format \
	packaging/debian/kvarc.install packaging/debian/kvarc-doc.install \
	packaging/debian/libkvarc-dev.install packaging/debian/python3-kvarc.install \
	packaging/debian/libkvarc0.install packaging/debian/libkvarc0.symbols \
	packaging/debian/libkvarc-device0.install packaging/debian/libkvarc-device0.symbols \
	packaging/debian/libkvarc-store0.install packaging/debian/libkvarc-store0.symbols \
	packaging/debian/libkvarc-tools0.install packaging/debian/libkvarc-tools0.symbols \
	packaging/debian/tests/command packaging/debian/tests/control \
	packaging/debian/tests/library packaging/debian/tests/python
