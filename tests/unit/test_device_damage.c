/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_device_damage.c - damaged archives on their way into a GPU (a stand-in of the driver, the
 * real kernels): each is noticed, or gives the elements that were written
 *
 * KVARC_DAMAGES: damaged archives for each of the ten that are made; 12 without it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../gpu/archive_chunks.h"
#include "device_util.h"
#include "util/hash.h"

enum { TOKENS = 110, CHUNKS_MOST = 64 };

/* Where the payloads of an archive are. */
struct payloads {
	const uint8_t *file;
	size_t n, at[CHUNKS_MOST], bytes[CHUNKS_MOST];
};

static void see_payload(void *opaque, const struct archive_chunk *c)
{
	struct payloads *p = opaque;
	assert_true(p->n < CHUNKS_MOST);
	p->at[p->n] = (size_t)(c->payload - p->file);
	p->bytes[p->n++] = c->bytes;
}

static uint64_t random_state = 20261125;

static size_t below(size_t n)
{
	return (size_t)(kvi_splitmix64(&random_state) % n);
}

enum damage { BIT_OF_PAYLOAD, BYTES_OF_PAYLOAD, MOVED_IN_PAYLOAD, BIT_OF_FILE, CUT, DAMAGES };

/* Damages a copy of an archive; whether a payload is another one then. */
static bool damage(struct synth_file *f, const struct payloads *p, enum damage kind)
{
	const size_t c = below(p->n), n = p->bytes[c];
	uint8_t *payload = f->p + p->at[c], *before = allocate(n);
	memcpy(before, payload, n);
	switch (kind) {
	case BIT_OF_PAYLOAD:
		payload[below(n)] ^= (uint8_t)(1 << below(8));
		break;
	case BYTES_OF_PAYLOAD:
		for (size_t at = below(n - 16), i = 0; i < 16; i++)
			payload[at + i] = (uint8_t)below(256);
		break;
	case MOVED_IN_PAYLOAD:
		memmove(payload + 16 * below(n / 16 - 1), payload + 16 * below(n / 16 - 1), 16);
		break;
	case BIT_OF_FILE:
		f->p[below(f->n)] ^= (uint8_t)(1 << below(8));
		break;
	default:
		f->n = below(f->n);
	}
	const bool other = kind < BIT_OF_FILE && memcmp(before, payload, n) != 0;
	free(before);
	return other;
}

/* What came of reading an archive. */
enum read_outcome { NOTICED, RIGHT, WRONG };

static enum read_outcome decode(kvarc_device *d, kvarc_device_plan *p, const struct made_archive *m)
{
	struct device_memory mem;
	kvarc_device_plan_info info;
	assert_int_equal(kvarc_device_plan_get_info(p, &info), KVARC_OK);
	make_memory(&mem, p, &m->c, TOKENS, below(2));
	kvarc_ret ret = kvarc_device_stage(p, address(mem.staging), NULL);
	if (!ret)
		ret = kvarc_device_place(p, mem.views, address(mem.work), address(mem.status),
		                         NULL);
	if (!ret)
		ret = kvarc_device_decode(p, info.layer0, UINT32_MAX, NULL);
	if (!ret)
		settle();
	if (!ret)
		ret = kvarc_device_plan_answer(p, info.layer0, UINT32_MAX, mem.status);
	bool same = true;
	for (size_t i = 0; i < m->c.geometry.n_tensors && !ret; i++)
		same = same && holds(&mem, &m->c, i, 0, 0, TOKENS);
	free_memory(&mem);
	(void)d;
	return ret ? NOTICED : same ? RIGHT : WRONG;
}

static enum read_outcome read_damaged(kvarc_device *d, struct synth_file *f,
                                      const struct made_archive *m)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .n = TOKENS };
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = synth_source(f);
	enum read_outcome outcome = NOTICED;
	kvarc_device_plan *p;
	kvarc_reader *r;
	o.common.error = &error;
	if (kvarc_reader_open(&r, &source, &o))
		return NOTICED;
	/* a damaged geometry is another one, which memory is not made for */
	if (kvarc_reader_geometry(r)->n_tensors == m->c.geometry.n_tensors &&
	    !kvarc_device_plan_read(&p, d, r, &range)) {
		outcome = decode(d, p, m);
		kvarc_device_plan_close(&p);
	}
	kvarc_reader_close(&r);
	return outcome;
}

/* Damages one archive n times; *noticed: how often that was. */
static void damage_archive(kvarc_device *d, struct made_archive *m, unsigned n, unsigned *noticed)
{
	struct payloads payloads = { .file = m->f.p };
	struct synth_file f = { .p = allocate(m->f.n), .cap = m->f.n };
	assert_true(archive_chunks(m->f.p, m->f.n, see_payload, &payloads));
	assert_true(payloads.n > 0);
	for (unsigned i = 0; i < n; i++) {
		const enum damage kind = (enum damage)(i % DAMAGES);
		memcpy(f.p, m->f.p, m->f.n);
		f.n = m->f.n;
		const bool other = damage(&f, &payloads, kind);
		const enum read_outcome outcome = read_damaged(d, &f, m);
		if (outcome == WRONG || (other && outcome != NOTICED)) {
			print_error("damage %d, number %u: not noticed\n", (int)kind, i);
			fail();
		}
		*noticed += outcome == NOTICED;
	}
	free(f.p);
}

static void test_damage(void **state)
{
	const uint8_t dtypes[] = { KVARC_F32, KVARC_F16, KVARC_BF16, KVARC_E4M3, KVARC_E5M2 };
	const char *wanted = getenv("KVARC_DAMAGES");
	const unsigned n = wanted ? (unsigned)atoi(wanted) : 12;
	kvarc_device *d = open_device();
	unsigned noticed = 0, all = 0;
	(void)state;
	for (size_t i = 0; i < sizeof dtypes; i++)
		for (int level = 0; level < 2; level++) {
			const struct synth_shape shape = { dtypes[i], 2,    2,           32,
				                           TOKENS,    true, SYNTH_SMOOTH };
			struct made_archive m;
			make_archive(&m, &shape, level);
			damage_archive(d, &m, n, &noticed);
			free_archive(&m);
			all += n;
		}
	printf("%u damaged archives: %u noticed, of the others the elements were right\n", all,
	       noticed);
	assert_true(noticed >= all / 5 * 3);
	kvarc_device_close(&d);
	assert_int_equal(left(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_damage) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
