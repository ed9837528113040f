# SPDX-License-Identifier: BSD-3-Clause
EXTRA_DIST += bench/METHOD.md bench/common.py bench/ratios.py bench/speed.py \
	bench/memory.py bench/files.py bench/copies.py bench/growth.py bench/profiles.py bench/models.py bench/wide.py bench/slots.py bench/blind.py bench/unseen.py \
	bench/seeds.py bench/dedup_pairs.py bench/dedup_policies.py bench/tokens.py bench/lossy.py bench/eval_ids.py \
	bench/engine_files.py bench/table.py bench/prefill.py bench/make_caches.py bench/make_spread.py \
	bench/make_slots.py bench/readme.py bench/readme_page.py bench/structure.py bench/setup.sh bench/flips.sh bench/must-show.sh \
	bench/compare_builds.py bench/limits.py bench/port_limits.py \
	bench/session_turns.py bench/slot_sessions.py bench/peers_dedup.sh bench/compare_archives.sh bench/sizes.py bench/tiny.py bench/kinds.py bench/start.py \
	bench/exactness.sh bench/exactness_digest.c bench/store_forks.py bench/store_turns.py bench/store_repack.py bench/weight_deltas.py

# The table of `quickstart demo`: kvarc next to zstd on the same bytes.
check_PROGRAMS += bench/peers
bench_peers_SOURCES = bench/peers.c
bench_peers_LDADD = libkvarc.la $(ZSTD_LIBS)

# Speed of the kernels that code elements.
check_PROGRAMS += bench/kernels
bench_kernels_SOURCES = bench/kernels_speed.c tests/rans_cases.h
bench_kernels_CPPFLAGS = $(AM_CPPFLAGS) -I$(srcdir)/tests
bench_kernels_LDADD = libkvitools.la libkvi.la

# Speed of exact products next to the peak of the processor.
check_PROGRAMS += bench/matmul
bench_matmul_SOURCES = bench/matmul_speed.c
bench_matmul_LDADD = libkvitools.la libkvi.la

# Tokens a second of a model in exact arithmetic, by the length of the cache.
check_PROGRAMS += bench/engine
bench_engine_SOURCES = bench/engine_speed.c
bench_engine_LDADD = libkvitools.la libkvi.la

# What tier had is worth next to other quantisers, on normal data.
check_PROGRAMS += bench/micro_gate
TESTS += bench/micro_gate
bench_micro_gate_SOURCES = bench/micro_gate.c
bench_micro_gate_LDADD = libkvarc-tools.la libkvarc.la -lm

# What limits of the gate without a model come to, in a model's KL.
check_PROGRAMS += bench/proxy
bench_proxy_SOURCES = bench/proxy_speed.c
bench_proxy_LDADD = libkvitools.la libkvi.la

# How long unpack looks for the areas of a segment.
check_PROGRAMS += bench/areas
bench_areas_SOURCES = bench/areas.c
bench_areas_LDADD = libkvitools.la libkvi.la

# Archives of a cache that another cache predicts.
check_PROGRAMS += bench/delta
bench_delta_SOURCES = bench/delta_archive.c
bench_delta_LDADD = libkvarc.la

# Slots of one session in one archive, over the last one alone.
check_PROGRAMS += bench/session
bench_session_SOURCES = bench/session.c
bench_session_LDADD = libkvitools.la libkvi.la

# An archive of 100 GB over a slow source: requests and bytes.
check_PROGRAMS += bench/large_range
bench_large_range_SOURCES = bench/large_range.c
bench_large_range_LDADD = libkvi.la

# Archives that grow: compacted, and after a crash at each write.
check_PROGRAMS += bench/appends
bench_appends_SOURCES = bench/appends.c
bench_appends_LDADD = libkvarc.la

# Archives that are small and made to cost a reader much; hostile_frames.sh measures them.
EXTRA_DIST += bench/hostile_frames.sh
check_PROGRAMS += bench/hostile_frames
bench_hostile_frames_SOURCES = bench/hostile_frames.c
bench_hostile_frames_LDADD = libkvitools.la libkvi.la

# A single chunk on two threads, and part of a chunk.
check_PROGRAMS += bench/chunk_threads
bench_chunk_threads_SOURCES = bench/chunk_threads.c
bench_chunk_threads_LDADD = libkvarc.la

# A range over a source where each request takes 30 ms; fails above its limits.
check_PROGRAMS += bench/slow_range
bench_slow_range_SOURCES = bench/slow_range.c
bench_slow_range_LDADD = libkvarc.la

# Puts and gets of a store's backends next to their raw clients.
check_PROGRAMS += bench/store_speed
bench_store_speed_SOURCES = bench/store_speed.c
bench_store_speed_CPPFLAGS = $(AM_CPPFLAGS) $(LIBCURL_CFLAGS) $(HIREDIS_CFLAGS)
bench_store_speed_LDADD = libkvistore.la libkvi.la $(LIBCURL_LINK) $(HIREDIS_LINK)

# The index of a store: look-ups, and its making from archives.
if HAVE_SQLITE3
check_PROGRAMS += bench/store_index
endif
bench_store_index_SOURCES = bench/store_index_speed.c
bench_store_index_LDADD = libkvistore.la libkvi.la
