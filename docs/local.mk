# SPDX-License-Identifier: BSD-3-Clause
# Documents that README.md links to, and its picture.
docsdir = $(docdir)/docs
dist_docs_DATA = \
	docs/attachments.md \
	docs/building.md \
	docs/dedup.md \
	docs/device.md \
	docs/embedding.md \
	docs/engines.md \
	docs/evidence.md docs/limits.md \
	docs/lossy.md \
	docs/measured.md \
	docs/pages.md \
	docs/profiles.md \
	docs/python.md \
	docs/serving.md \
	docs/states.md \
	docs/store.md \
	docs/transformers.md \
	docs/turns.svg \
	docs/what-does-not-work.md
