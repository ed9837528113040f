# SPDX-License-Identifier: BSD-3-Clause
dist_man_MANS += man/kvarc.1 man/kvarc-format.5 man/libkvarc.3
