# SPDX-License-Identifier: BSD-3-Clause
# Manual pages; those of the calls come from the comments of the headers: make update-man
call_pages = man/kvarc_base.3 man/kvarc_blocks.3 man/kvarc_device.3 man/kvarc_eval.3 man/kvarc_exchange.3 man/kvarc_file.3 man/kvarc_gate.3 \
	man/kvarc_geometry.3 man/kvarc_io.3 man/kvarc_keys.3 man/kvarc_lossy.3 man/kvarc_predictor.3 \
	man/kvarc_profile.3 man/kvarc_reader.3 man/kvarc_repair.3 man/kvarc_scores.3 \
	man/kvarc_sources.3 man/kvarc_canary.3 man/kvarc_server.3 man/kvarc_store.3 man/kvarc_stored.3 \
	man/kvarc_train.3 \
	man/kvarc_workspace.3 man/kvarc_writer.3
dist_man_MANS += man/kvarc.1 man/kvarc-format.5 man/libkvarc.3 $(call_pages)
EXTRA_DIST += man/make_pages.py man/pages.sh
TESTS += man/pages.sh

.PHONY: update-man
update-man:
	$(PYTHON3) $(srcdir)/man/make_pages.py $(srcdir)/include $(srcdir)/man

# The page of each call is that of its header.
man_links = for page in $(call_pages); do \
	sed -n 's/^\.Nm \(kvarc_[a-z0-9_]*\).*/\1/p' $(srcdir)/$$page | sed 1d | \
	while read -r call; do echo "$$call $${page\#\#*/}"; done; done
install-man-links:
	$(MKDIR_P) "$(DESTDIR)$(man3dir)"
	$(man_links) | while read -r call page; do \
		echo ".so man3/$$page" > "$(DESTDIR)$(man3dir)/$$call.3"; done
uninstall-man-links:
	$(man_links) | while read -r call page; do rm -f "$(DESTDIR)$(man3dir)/$$call.3"; done
.PHONY: install-man-links uninstall-man-links
