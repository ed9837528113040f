# SPDX-License-Identifier: BSD-3-Clause
# The specification, its tables, the reference decoder, the test vectors.
specdir = $(docdir)
nobase_dist_spec_DATA = spec/kvarc-format.md spec/frames.md spec/arithmetic.md \
	spec/store.md spec/profile.md spec/errata.md spec/examples.md spec/implementing.md \
	spec/codecs/bytes.md spec/codecs/cells.md spec/codecs/constant.md spec/codecs/grid.md \
	spec/codecs/had.md spec/codecs/klt.md spec/codecs/layers.md spec/codecs/linear.md \
	spec/codecs/lossy.md spec/codecs/mask.md spec/codecs/model.md spec/codecs/near.md \
	spec/codecs/predicted.md spec/codecs/rans.md spec/codecs/raw.md spec/codecs/repeat.md \
	spec/codecs/state.md spec/codecs/tokens.md spec/codecs/tsc.md spec/codecs/vq.md spec/codecs/zstd.md
EXTRA_DIST += spec/tables spec/reference spec/vectors

# After a change of the generators; `make check` says when they disagree.
vectors:
	$(PYTHON3) $(srcdir)/spec/vectors/make_vectors.py $(srcdir)/spec/vectors
	$(PYTHON3) $(srcdir)/spec/reference/make_examples.py \
		$(srcdir)/spec/examples.md
.PHONY: vectors
