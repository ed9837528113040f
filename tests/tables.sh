#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tables.sh - the static tables of the specification and of the library are the
# ones that spec/tables/make_tables.py makes
[ -n "$PYTHON3" ] || {
	echo "needs Python"
	exit 77
}
exec "$PYTHON3" "${srcdir:-.}/spec/tables/make_tables.py" --check
