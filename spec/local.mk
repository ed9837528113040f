# SPDX-License-Identifier: BSD-3-Clause
# The specification, its tables, the reference decoder, the test vectors.
EXTRA_DIST += spec/kvarc-format.md spec/frames.md spec/arithmetic.md \
	spec/profile.md \
	spec/errata.md spec/examples.md \
	spec/codecs spec/tables spec/reference spec/vectors

# After a change of the generators; `make check` says when they disagree.
vectors:
	$(PYTHON3) $(srcdir)/spec/vectors/make_vectors.py $(srcdir)/spec/vectors
	$(PYTHON3) $(srcdir)/spec/reference/make_examples.py \
		$(srcdir)/spec/examples.md
.PHONY: vectors
