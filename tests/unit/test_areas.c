/* SPDX-License-Identifier: BSD-3-Clause */
/* test_areas.c - intervals are found by search; areas that overlap are all unpacked */
#include "stream_util.h"

#include "format/frame.h"
#include "format/restore.h"
#include "writer/writer_internal.h"
#include "util/intervals.h"

enum { TOKENS = 300, CHANNELS = 3, TENSORS = 2, ROW = CHANNELS * TENSORS };

/* ----- search ----- */

struct areas_found {
	const struct kvi_interval *of;
	uint8_t seen[200];
	size_t n, stop_after;
};

static int note(void *opaque, size_t id)
{
	struct areas_found *f = opaque;
	f->seen[id]++;
	return ++f->n == f->stop_after ? 7 : 0;
}

static void test_search_finds_all(void **state)
{
	(void)state;
	uint64_t seed = 1;
	for (size_t n = 0; n < 200; n++) {
		struct kvi_interval list[200];
		uint64_t start[200], end[200];
		for (size_t i = 0; i < n; i++) {
			start[i] = rand_next(&seed) % 100;
			end[i] = start[i] + 1 + rand_next(&seed) % (i % 7 ? 3 : 100);
			list[i] = (struct kvi_interval){ start[i], end[i], 0, i };
		}
		kvi_intervals_sort(list, n);
		for (uint64_t from = 0; from < 210; from += 3) {
			struct areas_found f = { .n = 0 };
			uint64_t to = from + 1 + rand_next(&seed) % 20;
			size_t expected = 0;
			assert_int_equal(kvi_intervals_search(list, n, from, to, note, &f), 0);
			for (size_t i = 0; i < n; i++) {
				bool overlaps = start[i] < to && end[i] > from;
				assert_int_equal(f.seen[i], overlaps);
				expected += overlaps;
			}
			assert_int_equal(f.n, expected);
			f = (struct areas_found){ .stop_after = 1 };
			assert_int_equal(kvi_intervals_search(list, n, from, to, note, &f),
			                 expected ? 7 : 0);
			assert_int_equal(f.n, expected > 0);
		}
	}
}

static int count(void *opaque, size_t id)
{
	uint64_t *sum = opaque;
	(void)id;
	++*sum;
	return 0;
}

/* Going through all of them would take 10^12 steps. */
static void test_search_does_not_walk(void **state)
{
	(void)state;
	enum { MANY = 1000000 };
	struct kvi_interval *list = malloc(MANY * sizeof *list);
	uint64_t sum = 0;
	assert_non_null(list);
	list[0] = (struct kvi_interval){ 0, MANY, 0, 0 };
	for (size_t i = 1; i < MANY; i++)
		list[i] = (struct kvi_interval){ i, i + 1, 0, i };
	kvi_intervals_sort(list, MANY);
	for (uint64_t t = 0; t < MANY; t++)
		kvi_intervals_search(list, MANY, t, t + 1, count, &sum);
	assert_int_equal(sum, 2 * MANY - 1);
	free(list);
}

/* ----- items with areas that overlap ----- */

/* Areas of at most `each` tokens, one every `step`: a row has the channels of both tensors. */
static size_t put_item(kvarc_writer *w, size_t each, size_t step)
{
	static struct kvi_area_view views[TOKENS][TENSORS];
	static struct kvi_piece pieces[TOKENS];
	struct kvi_restore item = { .kind = KVI_ITEM_OTHER,
		                    .name = (char[]){ "x" },
		                    .pieces = pieces };
	struct kvi_out out;
	for (size_t t0 = 0; t0 < TOKENS; t0 += step) {
		size_t i = item.n_pieces++;
		size_t n = each < TOKENS - t0 ? each : TOKENS - t0;
		pieces[i] = (struct kvi_piece){ .type = KVI_PIECE_AREA,
			                        .bytes = n * ROW,
			                        .t0 = t0,
			                        .n_tokens = n,
			                        .n_views = TENSORS,
			                        .views = views[i] };
		for (uint32_t k = 0; k < TENSORS; k++)
			views[i][k] =
				(struct kvi_area_view){ k, CHANNELS, k * CHANNELS, ROW, 0, 1 };
		item.file_bytes += n * ROW;
	}
	kvi_out_init(&out, kvi_writer_alloc(w));
	kvi_restore_put(&out, &item);
	assert_int_equal(kvi_writer_frame(w, KVI_FRAME_RESTORE, out.p, out.n, true), KVARC_OK);
	kvi_out_free(&out);
	return (size_t)item.file_bytes;
}

static const struct {
	size_t each, step;
} shapes[] = { { TOKENS, TOKENS }, { 1, 1 }, { 40, 7 }, { 7, 40 }, { TOKENS, 100 } };
enum { ITEMS = sizeof shapes / sizeof shapes[0] };

static uint8_t element(size_t tensor, size_t token, size_t channel)
{
	return (uint8_t)(tensor * 101 + token * 7 + channel);
}

static struct memfile written(size_t bytes[ITEMS])
{
	static const kvarc_track track = { 0 };
	static const kvarc_tensor tensors[TENSORS] = {
		{ .kind = KVARC_KEY, .dtype = KVARC_U8, .heads = 1, .channels = CHANNELS },
		{ .kind = KVARC_VALUE, .dtype = KVARC_U8, .heads = 1, .channels = CHANNELS },
	};
	const kvarc_geometry g = {
		.n_tracks = 1, .tracks = &track, .n_tensors = TENSORS, .tensors = tensors
	};
	struct memfile f = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	static uint8_t data[TENSORS][TOKENS * CHANNELS];
	kvarc_view views[TENSORS];
	kvarc_writer *w;
	o.segment_tokens = 32;
	for (size_t k = 0; k < TENSORS; k++) {
		for (size_t i = 0; i < TOKENS * CHANNELS; i++)
			data[k][i] = element(k, i / CHANNELS, i % CHANNELS);
		views[k] = (kvarc_view){ .data = data[k],
			                 .token_stride = CHANNELS,
			                 .block_stride = CHANNELS,
			                 .block_elems = CHANNELS,
			                 .elem_stride = 1 };
	}
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, &g), KVARC_OK);
	for (size_t i = 0; i < ITEMS; i++)
		bytes[i] = put_item(w, shapes[i].each, shapes[i].step);
	assert_int_equal(kvarc_writer_append(w, 0, TOKENS, NULL, NULL, views), KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	return f;
}

struct unpacked_areas {
	uint8_t *p;
	size_t n;
};

/* Rows come in any order. */
static int write_rows(void *opaque, const void *data, size_t bytes, uint64_t at)
{
	struct unpacked_areas *f = opaque;
	if (at > f->n || bytes > f->n - at)
		return 1;
	memcpy(f->p + at, data, bytes);
	return 0;
}

static int open_item(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct unpacked_areas *f = (struct unpacked_areas *)opaque + item->index;
	*f = (struct unpacked_areas){ calloc(1, (size_t)item->bytes), (size_t)item->bytes };
	*sink = (kvarc_sink){ .write = write_rows, .opaque = f };
	return f->p ? 0 : -1;
}

static void check_item(const struct unpacked_areas *f, size_t each, size_t step)
{
	size_t at = 0;
	for (size_t t0 = 0; t0 < TOKENS; t0 += step)
		for (size_t t = t0; t < t0 + each && t < TOKENS; t++)
			for (size_t k = 0; k < TENSORS; k++)
				for (size_t c = 0; c < CHANNELS; c++)
					assert_int_equal(f->p[at++], element(k, t, c));
	assert_int_equal(at, f->n);
}

static void test_areas_overlap(void **state)
{
	(void)state;
	size_t bytes[ITEMS];
	struct memfile archive = written(bytes);
	for (unsigned threads = 1; threads < 4; threads += 2) {
		struct unpacked_areas files[ITEMS];
		kvarc_source source = memfile_source(&archive);
		kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
		kvarc_reader *r;
		o.common.threads = threads;
		assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
		assert_int_equal(kvarc_unpack(r, open_item, files), KVARC_OK);
		kvarc_reader_close(&r);
		for (size_t i = 0; i < ITEMS; i++) {
			assert_int_equal(files[i].n, bytes[i]);
			check_item(&files[i], shapes[i].each, shapes[i].step);
			free(files[i].p);
		}
	}
	memfile_free(&archive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_search_finds_all),
		cmocka_unit_test(test_search_does_not_walk),
		cmocka_unit_test(test_areas_overlap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
