# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# The version is that of the library and of the format.
kv --version | sed 's/kernels: [a-z0-9]*/kernels: K/'
kv --version > long
kv -V | cmp - long
