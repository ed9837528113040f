/* SPDX-License-Identifier: BSD-3-Clause */
/* target_pickle.c - fuzz target: the pickle of a file of torch.save
 *
 * The data are a/data.pkl of a zip file that also has a/data/0 and a/data/1.
 */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

enum { STORAGE = 2048, MEMBERS = 3, SPACE = 4096 };

struct zip_made {
	uint8_t *p;
	size_t n;
};

static void put(struct zip_made *m, const void *p, size_t n)
{
	memcpy(m->p + m->n, p, n);
	m->n += n;
}

static void put_number(struct zip_made *m, uint32_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		m->p[m->n++] = (uint8_t)(i < 4 ? v >> (8 * i) : 0);
}

/* A header of a stored member, in front of it or in the directory. */
static void put_head(struct zip_made *m, bool central, const char *name, size_t bytes, size_t at)
{
	put_number(m, central ? 0x02014b50 : 0x04034b50, 4);
	put_number(m, 0, central ? 16 : 14); /* no flags, stored, no time, no check */
	put_number(m, (uint32_t)bytes, 4);
	put_number(m, (uint32_t)bytes, 4);
	put_number(m, (uint32_t)strlen(name), 2);
	put_number(m, 0, central ? 12 : 2);
	if (central)
		put_number(m, (uint32_t)at, 4);
	put(m, name, strlen(name));
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	static const char *const names[MEMBERS] = { "a/data.pkl", "a/data/0", "a/data/1" };
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	struct zip_made m = { malloc(n + 2 * STORAGE + SPACE), 0 };
	uint8_t storage[STORAGE];
	size_t at[MEMBERS];
	if (!m.p)
		abort();
	for (size_t i = 0; i < STORAGE; i++)
		storage[i] = (uint8_t)(i * i >> 3);
	for (size_t i = 0; i < MEMBERS; i++) {
		at[i] = m.n;
		put_head(&m, false, names[i], i ? STORAGE : n, 0);
		put(&m, i ? storage : data, i ? STORAGE : n);
	}
	const size_t directory = m.n;
	for (size_t i = 0; i < MEMBERS; i++)
		put_head(&m, true, names[i], i ? STORAGE : n, at[i]);
	const size_t bytes = m.n - directory;
	put_number(&m, 0x06054b50, 4);
	put_number(&m, 0, 4);
	put_number(&m, MEMBERS, 2);
	put_number(&m, MEMBERS, 2);
	put_number(&m, (uint32_t)bytes, 4);
	put_number(&m, (uint32_t)directory, 4);
	put_number(&m, 0, 2);
	opt.rope = "none";
	fuzz_import(m.p, m.n, env, &opt, "cache.pt", true);
	free(m.p);
}
