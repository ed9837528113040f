/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proxy_speed.c - what a limit of the gate without a model comes to: proxy MODEL TIER[+PROFILE]
 * IDS...
 *
 * For each file of token ids SEQUENCES caches of PREFIX tokens, for each limit bits and the KL of
 * the next tokens (mean of all sequences, least, most), as `kvarc eval` measures it; then the rank
 * correlation of a layer's error and of its KL alone with the tier as it is given.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/gate_pack.h"

enum { SEQUENCES = 2, APART = 8, IDS_MAX = 1 << 16, LAYERS_MAX = 256, LIMITS = 5 };

static const double limits[LIMITS] = { 0.6, 0.4, 0.25, 0.15, 0.1 };

struct bytes {
	uint8_t *p;
	size_t n, capacity;
};

/* What a limit gave, over sequences. */
struct row {
	double bits, kl, least, most;
	unsigned n, unchanged;
};

struct bench {
	kvarc_error error;
	kvarc_eval *e;
	kvarc_profile *profile;
	kvarc_lossy tier;
	kvarc_writer_options writer;
	struct row rows[LIMITS + 1]; /* the last one: no limit */
	double correlation;
	unsigned n;
};

static struct bench b;

static void check(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "proxy: %s: %s %s\n", what, kvarc_strerror(ret), b.error.text);
	exit(2);
}

static int put(void *opaque, const void *from, size_t n, uint64_t offset)
{
	struct bytes *to = opaque;
	if (offset + n > to->capacity) {
		to->capacity = 2 * (size_t)(offset + n);
		to->p = realloc(to->p, to->capacity);
		if (!to->p)
			return -1;
	}
	memcpy(to->p + offset, from, n);
	to->n = offset + n > to->n ? (size_t)(offset + n) : to->n;
	return 0;
}

static int64_t get(void *opaque, void *to, size_t n, uint64_t offset)
{
	const struct bytes *from = opaque;
	if (offset >= from->n)
		return 0;
	n = n > from->n - offset ? from->n - (size_t)offset : n;
	memcpy(to, from->p + offset, n);
	return (int64_t)n;
}

static kvarc_source source_of(struct bytes *f)
{
	return (kvarc_source){ .read = get, .opaque = f, .size = f->n };
}

static void open_profile(const char *path)
{
	struct bytes f = { 0 };
	char part[4096];
	FILE *in = fopen(path, "rb");
	for (size_t n; in && (n = fread(part, 1, sizeof part, in)) > 0;)
		check(put(&f, part, n, f.n) ? KVARC_MEM : KVARC_OK, path);
	if (in)
		fclose(in);
	kvarc_source source = source_of(&f);
	check(kvarc_profile_open(&b.profile, &source, NULL), path);
	free(f.p);
}

/* The exact cache as a file: gates take imports. */
static void make_file(struct bytes *file)
{
	struct bytes archive = { 0 };
	const kvarc_sink to = { .write = put, .opaque = &archive },
			 out = { .write = put, .opaque = file };
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_writer *w;
	kvarc_reader *r;
	wo.flags = KVARC_WRITE_FILE_ID;
	check(kvarc_writer_open(&w, &to, &wo), "writer");
	check(kvarc_writer_set_geometry(w, b.e->geometry), "geometry");
	check(kvarc_writer_append(w, 0, b.e->exact.n, NULL, b.e->positions, b.e->exact.views),
	      "append");
	check(kvarc_writer_close(&w), "close");
	kvarc_source from = source_of(&archive);
	check(kvarc_reader_open(&r, &from, &ro), "reader");
	check(kvarc_export_safetensors(r, &all, &out), "export");
	kvarc_reader_close(&r);
	free(archive.p);
}

static void measure(const int32_t *ids, const kvarc_lossy *lossy, struct row *row)
{
	kvarc_writer_options w = b.writer;
	kvarc_eval_result r = { 0 };
	w.lossy = lossy;
	check(kvi_eval_through_archive(b.e, ids, &w, &r), "archive");
	check(kvi_eval_compare(b.e, b.e->back.views, b.e->back.n, &r), "compare");
	row->bits += 8 * (double)r.archive_bytes / (double)r.elements;
	row->kl += r.mean_kl;
	row->least = !row->n || r.mean_kl < row->least ? r.mean_kl : row->least;
	row->most = r.mean_kl > row->most ? r.mean_kl : row->most;
	row->n++;
}

static void run_limits(const int32_t *ids)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_gate_options go = KVARC_GATE_OPTIONS_INIT;
	struct bytes file = { 0 };
	kvarc_import *im;
	make_file(&file);
	kvarc_source source = source_of(&file);
	check(kvarc_import_open(&im, &source, NULL, &io), "import");
	go.writer = &b.writer;
	go.common = b.e->o.common;
	for (size_t i = 0; i < LIMITS; i++) {
		kvarc_gate_result r;
		kvarc_gate *g;
		go.max_error = limits[i];
		check(kvarc_gate_import(&g, im, &go), "gate");
		check(kvarc_gate_get_result(g, &r), "result");
		b.rows[i].unchanged += r.unchanged;
		if (kvarc_gate_lossy(g))
			measure(ids, kvarc_gate_lossy(g), &b.rows[i]);
		kvarc_gate_close(&g);
	}
	kvarc_import_close(&im);
	free(file.p);
}

static double rank_of(const double *x, size_t n, size_t i)
{
	double rank = 0;
	for (size_t k = 0; k < n; k++)
		rank += x[k] < x[i] ? 1 : x[k] > x[i] || k == i ? 0 : 0.5;
	return rank;
}

/* Spearman's, without ties. */
static double rank_correlation(const double *x, const double *y, size_t n)
{
	double sum = 0, all = (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = rank_of(x, n, i) - rank_of(y, n, i);
		sum += d * d;
	}
	return 1 - 6 * sum / (all * (all * all - 1));
}

static void run_layers(const int32_t *ids)
{
	const kvarc_geometry *g = b.e->geometry;
	double error[LAYERS_MAX], kl[LAYERS_MAX];
	uint32_t n = g->tensors[g->n_tensors - 1].layer + 1;
	kvarc_view *mixed = calloc(g->n_tensors, sizeof *mixed);
	struct kvi_proxy *p;
	check(mixed && n <= LAYERS_MAX ? KVARC_OK : KVARC_MEM, "layers");
	measure(ids, &b.tier, &b.rows[LIMITS]);
	check(kvi_proxy_open(&p, b.e, n), "measure");
	kvi_proxy_measure(p, error);
	kvi_proxy_close(&p);
	for (uint32_t l = 0; l < n; l++) {
		kvarc_eval_result r = { 0 };
		for (size_t i = 0; i < g->n_tensors; i++)
			mixed[i] = (g->tensors[i].layer == l ? &b.e->back : &b.e->exact)->views[i];
		check(kvi_eval_compare(b.e, mixed, b.e->exact.n, &r), "compare");
		kl[l] = r.mean_kl;
	}
	b.correlation += rank_correlation(error, kl, n);
	b.n++;
	free(mixed);
}

static void run_file(const char *path)
{
	static int32_t ids[IDS_MAX];
	const size_t each = (size_t)b.e->o.prefix + b.e->o.continuation;
	size_t n = 0;
	FILE *in = fopen(path, "r");
	while (in && n < IDS_MAX && fscanf(in, "%d", &ids[n]) == 1)
		n++;
	if (in)
		fclose(in);
	check(n >= each ? KVARC_OK : KVARC_DATA, path);
	for (size_t s = 0; s < SEQUENCES; s++) {
		const int32_t *at = ids + s * ((n - each) / APART);
		check(kvi_eval_make_cache(b.e, at, NULL), "cache");
		check(kvi_eval_make_exact(b.e, at), "logits");
		run_layers(at);
		run_limits(at);
	}
}

static void print(void)
{
	for (size_t i = 0; i <= LIMITS; i++) {
		const struct row *r = &b.rows[i];
		if (i < LIMITS)
			printf("%-8g", limits[i]);
		else
			printf("%-8s", "no limit");
		printf(" %7.3f bits, KL %.2g (%.2g-%.2g), %u sequences, %u layers unchanged\n",
		       r->bits / r->n, r->kl / r->n, r->least, r->most, r->n, r->unchanged);
	}
	printf("rank correlation %.2f (mean of %u caches)\n", b.correlation / b.n, b.n);
}

int main(int argc, char **argv)
{
	kvarc_eval_options o = KVARC_EVAL_OPTIONS_INIT;
	kvarc_predictor *model;
	if (argc < 4) {
		fprintf(stderr, "usage: proxy MODEL TIER[+PROFILE] IDS...\n");
		return 2;
	}
	char *profile = strchr(argv[2], '+');
	if (profile) {
		*profile = '\0';
		open_profile(profile + 1);
	}
	check(kvarc_lossy_parse(&b.tier, argv[2], &b.error), argv[2]);
	b.writer = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	b.writer.lossy = &b.tier;
	b.writer.level = 1;
	b.writer.profile = b.profile;
	check(kvarc_predictor_open_model(&model, argv[1], NULL), argv[1]);
	o.predictor = model;
	o.common.error = &b.error;
	check(kvarc_eval_open(&b.e, &o), "evaluation");
	for (int i = 3; i < argc; i++)
		run_file(argv[i]);
	print();
	kvarc_eval_close(&b.e);
	kvarc_predictor_close(&model);
	kvarc_profile_close(&b.profile);
	return 0;
}
