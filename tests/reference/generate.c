/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * generate.c - small random archives by the C writer, for the reference decoder
 *
 * generate SEED FILE: geometry, dtypes, shapes, content, level, threads and the
 * way of appending come from the seed; some are closed or left and appended to, with rewinds and
 * checkpoints. Prints what it chose on one line.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvarc.h>

enum {
	MAX_TENSORS = 4,
	MAX_TRACKS = 2,
	MAX_ROTARY = 16,
	MAX_TOKENS = 330,
	/* Elements of all tensors: the reference is slow. */
	MAX_ELEMENTS = 12000
};

static uint64_t random_state;
static int tiered;  /* a lossy tier, and what it takes */
static int resumes; /* the writer is closed or dies, and another one continues */

static uint32_t next_random(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 32);
}

static uint32_t below(uint32_t n)
{
	return next_random() % n;
}

static double gauss(void)
{
	double sum = 0;
	for (int i = 0; i < 12; i++)
		sum += next_random() / 4294967296.0;
	return sum - 6;
}

static void *checked(void *p)
{
	if (!p) {
		fprintf(stderr, "generate: out of memory\n");
		exit(1);
	}
	return p;
}

static void check(kvarc_ret ret, const kvarc_error *e, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "generate: %s: %s (%s)\n", what, kvarc_strerror(ret), e->text);
	exit(1);
}

/* ----- elements ------------------------------------------------------ */

/* A float cut to a dtype of e exponent and m mantissa bits, as bits. */
static uint32_t cut_float(float value, int e, int m)
{
	uint32_t x, sign;
	memcpy(&x, &value, sizeof x);
	sign = x >> 31 << (e + m);
	int field = (int)(x >> 23 & 255) - 127 + (1 << (e - 1)) - 1;
	uint32_t low = (x & 0x7fffff) | 0x800000;
	if (field >= (1 << e) - 1)
		return sign | ((((1u << e) - 1) << m) - 1);
	if (field <= 0)
		return sign | (1 - field > 8 ? 0 : low >> (24 - m - field));
	return sign | (uint32_t)field << m | (low >> (23 - m) & ((1u << m) - 1));
}

static uint32_t element(uint8_t dtype, double value)
{
	uint32_t x;
	float f = (float)value;
	switch (dtype) {
	case KVARC_F32:
		memcpy(&x, &f, sizeof x);
		return x;
	case KVARC_F16:
		return cut_float(f, 5, 10);
	case KVARC_BF16:
		return cut_float(f, 8, 7);
	case KVARC_E4M3:
		return cut_float(f, 4, 3);
	case KVARC_E5M2:
		return cut_float(f, 5, 2);
	default:
		return (uint32_t)(int)(value * 16);
	}
}

static void store(uint8_t *to, uint32_t x, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (uint8_t)(x >> 8 * i);
}

/* Kinds of content of a tensor. */
enum { NORMAL, TURNING, ANY_BITS, CONSTANT, DEAD_CHANNELS, N_CONTENTS };

struct tensor_data {
	uint8_t *p;
	kvarc_view view;
	unsigned content;
};

/* Means of a pair of channels, turned by the position. */
static double turned(const kvarc_rope *r, const double *mean, uint32_t c, int32_t position)
{
	uint32_t half = r->rotary / 2;
	if (c >= r->rotary)
		return mean[c];
	uint32_t pair = r->pairing == KVARC_ROPE_HALF ? c % half : c / 2;
	uint32_t a = r->pairing == KVARC_ROPE_HALF ? pair : 2 * pair;
	uint32_t b = r->pairing == KVARC_ROPE_HALF ? pair + half : a + 1;
	double turn = (double)((uint64_t)(int64_t)position * r->freq[pair]) /
	              18446744073709551616.0;
	double angle = 6.283185307179586 * turn;
	return c == a ? mean[a] * cos(angle) - mean[b] * sin(angle)
	              : mean[b] * cos(angle) + mean[a] * sin(angle);
}

static void fill(struct tensor_data *d, const kvarc_geometry *g, const kvarc_tensor *t,
                 uint32_t tokens, const int32_t *positions)
{
	size_t size = kvarc_dtype_bytes(t->dtype);
	uint32_t width = t->heads * t->channels;
	double *mean = checked(calloc(width, sizeof *mean));
	double *sigma = checked(calloc(width, sizeof *sigma));
	for (uint32_t c = 0; c < width; c++) {
		mean[c] = below(3) ? gauss() * (below(4) ? 1 : 20) : 0;
		sigma[c] = ldexp(1, (int)below(10) - 7);
	}
	for (uint32_t r = 0; r < tokens; r++) {
		uint32_t row = next_random();
		int same_row = !below(12);
		for (uint32_t c = 0; c < width; c++) {
			double mu = mean[c];
			if (d->content == TURNING && t->rope)
				mu = turned(&g->ropes[t->rope - 1],
				            mean + c / t->channels * t->channels, c % t->channels,
				            positions[r]);
			uint32_t x = element(t->dtype, mu + sigma[c] * gauss());
			if (d->content == ANY_BITS || !below(tiered ? 4000 : 200))
				x = next_random();
			if (d->content == CONSTANT)
				x = 0x3c3c3c3c;
			if (d->content == DEAD_CHANNELS && c % 3 == 0)
				x = c;
			else if (d->content == DEAD_CHANNELS && same_row)
				x = row;
			store(d->p + ((size_t)r * width + c) * size, x, size);
		}
	}
	free(mean);
	free(sigma);
}

/* ----- geometry ------------------------------------------------------ */

static uint64_t freqs[2][MAX_ROTARY / 2];
static kvarc_rope ropes[2];
static kvarc_track tracks[MAX_TRACKS];
static kvarc_tensor tensors[MAX_TENSORS];
static char names[MAX_TENSORS][16];

static kvarc_geometry make_geometry(void)
{
	static const uint8_t dtypes[] = { KVARC_F32,  KVARC_F16,  KVARC_F16,  KVARC_BF16,
		                          KVARC_BF16, KVARC_BF16, KVARC_E4M3, KVARC_E5M2,
		                          KVARC_I8,   KVARC_U8,   KVARC_BYTES };
	kvarc_geometry g = { .n_ropes = below(3),
		             .n_tracks = 1 + below(MAX_TRACKS),
		             .n_tensors = 1 + below(MAX_TENSORS),
		             .ropes = ropes,
		             .tracks = tracks,
		             .tensors = tensors };
	for (size_t i = 0; i < g.n_ropes; i++) {
		ropes[i] = (kvarc_rope){ .pairing = (uint8_t)below(2),
			                 .rotary = 2 + 2 * below(MAX_ROTARY / 2),
			                 .freq = freqs[i] };
		for (uint32_t k = 0; k < ropes[i].rotary / 2; k++)
			freqs[i][k] = (uint64_t)next_random() << 32 >> below(20);
	}
	for (size_t i = 0; i < g.n_tracks; i++)
		tracks[i] = (kvarc_track){ .kind = (uint8_t)below(4),
			                   .window = below(100),
			                   .label = "a track" };
	for (size_t i = 0; i < g.n_tensors; i++) {
		kvarc_tensor *t = &tensors[i];
		*t = (kvarc_tensor){ .layer = below(3),
			             .kind = (uint8_t)below(tiered ? 2 : 10),
			             .dtype = dtypes[below(tiered ? 8 : sizeof dtypes)],
			             .heads = 1 + below(4),
			             .channels = 1 + below(20),
			             .track = below((uint32_t)g.n_tracks),
			             .rope = below((uint32_t)g.n_ropes + 1),
			             .flags = (uint8_t)below(4),
			             .name = names[i] };
		if (t->rope && ropes[t->rope - 1].rotary > t->channels)
			t->channels = ropes[t->rope - 1].rotary;
		snprintf(names[i], sizeof names[i], "t%u", (unsigned)i);
	}
	return g;
}

/* ----- one file ------------------------------------------------------ */

static int write_file(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	return !fseek(opaque, (long)offset, SEEK_SET) && fwrite(buf, 1, bytes, opaque) == bytes
	               ? 0
	               : -1;
}

static int64_t read_file(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	if (fseek(opaque, (long)offset, SEEK_SET))
		return -1;
	bytes = fread(buf, 1, bytes, opaque);
	return ferror((FILE *)opaque) ? -1 : (int64_t)bytes;
}

/* Another writer continues the archive. */
static void resume(kvarc_writer **w, FILE *f, const kvarc_writer_options *o)
{
	kvarc_sink sink = { .write = write_file, .opaque = f };
	kvarc_source source = { .read = read_file, .opaque = f };
	if (below(2)) {
		check(kvarc_writer_close(w), o->common.error, "close");
	} else {
		check(kvarc_writer_commit(*w), o->common.error, "commit");
		kvarc_writer_abort(w);
	}
	if (fflush(f) || fseek(f, 0, SEEK_END)) {
		fprintf(stderr, "generate: seeking failed\n");
		exit(1);
	}
	source.size = (uint64_t)ftell(f);
	check(kvarc_writer_open_append(w, &source, &sink, o), o->common.error, "append");
}

static uint32_t choose_tokens(const kvarc_geometry *g, uint32_t track)
{
	uint32_t width = 1;
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].track == track)
			width += g->tensors[i].heads * g->tensors[i].channels;
	uint32_t most = MAX_ELEMENTS / (uint32_t)g->n_tracks / width;
	return below((most < MAX_TOKENS ? most : MAX_TOKENS) + 1);
}

static void append_track(kvarc_writer **w, const kvarc_geometry *g, uint32_t track, FILE *f,
                         kvarc_writer_options *o)
{
	kvarc_error *e = o->common.error;
	static int32_t ids[MAX_TOKENS], positions[MAX_TOKENS];
	struct tensor_data data[MAX_TENSORS];
	kvarc_view views[MAX_TENSORS];
	uint32_t tokens = choose_tokens(g, track);
	int32_t position = (int32_t)below(2000) - 1000;
	for (uint32_t i = 0; i < tokens; i++) {
		ids[i] = (int32_t)next_random();
		positions[i] = position;
		position += below(30) ? 1 : (int32_t)below(2000) - 300;
	}
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		size_t size = kvarc_dtype_bytes(t->dtype);
		uint32_t width = t->heads * t->channels;
		data[i].content = below(tiered && below(4) ? ANY_BITS : N_CONTENTS);
		data[i].p = checked(malloc((tokens + 1) * width * size));
		if (t->track == track)
			fill(&data[i], g, t, tokens, positions);
		views[i] = (kvarc_view){ .data = data[i].p,
			                 .token_stride = width * size,
			                 .block_elems = width,
			                 .elem_stride = (uint32_t)size };
	}
	int use_ids = below(2), use_positions = below(3) > 0;
	for (uint32_t at = 0; at < tokens;) {
		uint32_t n = 1 + below(tokens - at);
		check(kvarc_writer_append(*w, track, n, use_ids ? ids + at : NULL,
		                          use_positions ? positions + at : NULL, views),
		      e, "append");
		for (size_t i = 0; i < g->n_tensors; i++)
			views[i].data = (uint8_t *)views[i].data + n * views[i].token_stride;
		at += n;
		if (!below(4))
			check(kvarc_writer_commit(*w), e, "commit");
		if (!resumes)
			continue;
		if (!below(4))
			check(kvarc_writer_checkpoint(*w, "a state", below(1000), NULL), e,
			      "checkpoint");
		if (!below(3)) {
			o->level = below(2) ? KVARC_LEVEL(1) : KVARC_LEVEL(0);
			resume(w, f, o);
		}
		if (!below(4)) {
			uint32_t back = below(n + 1);
			at -= back;
			check(kvarc_writer_rewind(*w, track, at), e, "rewind");
			for (size_t i = 0; i < g->n_tensors; i++)
				views[i].data = (uint8_t *)views[i].data -
				                back * views[i].token_stride;
		}
	}
	for (size_t i = 0; i < g->n_tensors; i++)
		free(data[i].p);
}

/* Four rates at most, of some tokens or of all there may be. */
static void choose_token_rates(kvarc_lossy *tier)
{
	static int16_t rates[MAX_TOKENS];
	int16_t kinds[6] = { 0, 0, 0, 0, KVARC_LOSSY_NOTHING, KVARC_LOSSY_DROP };
	unsigned n = 2 + below(5);
	for (int i = 0; i < 4; i++)
		kinds[i] = (int16_t)((int)below(97) - 48);
	for (size_t i = 0; i < MAX_TOKENS; i++)
		rates[i] = kinds[below(n)];
	tier->token_rate = rates;
	tier->n_token_rates = 1 + below(MAX_TOKENS);
}

/* Any tier without a profile; keys and values that are normal stay in range of had. */
static const kvarc_lossy *choose_tier(void)
{
	static kvarc_lossy tier;
	tier = (kvarc_lossy){ .tier = KVARC_TIER_HAD,
		              .rate = 16 + (int)below(89),
		              .key_rate = (int)below(33) - 16,
		              .exact_tokens = below(9),
		              .generation = below(260),
		              .flags = below(4) };
	switch (below(6)) {
	case 0:
	case 1:
		tier.tier = KVARC_TIER_NEAR;
		tier.rate = 0;
		tier.flags = 0;
		tier.params.bound.max_error = 1000u << below(20);
		break;
	case 2:
		tier.tier = KVARC_TIER_TSC;
		tier.rate = 16 * (2 + (int)below(7));
		tier.key_rate = 0;
		tier.params.tsc.keyframe = below(5) * below(60);
		tier.params.tsc.block = below(3) * below(70);
		break;
	case 3:
		tier.tier = KVARC_TIER_VQ;
		tier.rate = 16 * (1 + (int)below(4));
		tier.key_rate = 0;
		tier.params.vq.fallback = below(2) * below(600);
		if (tier.rate == 32 && below(2))
			tier.flags |= KVARC_LOSSY_PRODUCT;
		break;
	default:
		break;
	}
	if (below(2))
		choose_token_rates(&tier);
	return &tier;
}

int main(int argc, char **argv)
{
	kvarc_error error = { 0 };
	kvarc_writer *w;
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	FILE *f = argc == 3 ? fopen(argv[2], "w+b") : NULL;
	if (!f) {
		fprintf(stderr, "usage: generate SEED FILE\n");
		return 2;
	}
	random_state = strtoull(argv[1], NULL, 0) * 2 + 1;
	next_random();
	tiered = !below(3);
	kvarc_geometry g = make_geometry();
	o.common.error = &error;
	o.common.threads = below(3);
	const int level = below(3) > 0;
	o.level = KVARC_LEVEL(level);
	o.flags = KVARC_WRITE_FILE_ID | (below(2) ? KVARC_WRITE_VERIFY : 0) |
	          (below(2) ? KVARC_WRITE_STREAMABLE : 0);
	o.segment_tokens = 32 + below(225);
	o.chunk_bytes = tiered || below(2) ? 0 : 64 + below(4000);
	for (int i = 0; i < 16; i++)
		o.file_id[i] = (uint8_t)below(256);
	if (tiered)
		o.lossy = choose_tier();
	/* Of odd seeds; archives of the others stay what they were. */
	resumes = !tiered && !(o.flags & KVARC_WRITE_STREAMABLE) && strtoul(argv[1], NULL, 0) % 2;
	printf("seed %s: level %d, threads %u, flags %u, segment %u, "
	       "chunk %u, tier %d %d/16; %zu ropes, %zu tracks;",
	       argv[1], o.level, o.common.threads, o.flags, (unsigned)o.segment_tokens,
	       (unsigned)o.chunk_bytes, o.lossy ? (int)o.lossy->tier : 0,
	       o.lossy ? o.lossy->rate : 0, g.n_ropes, g.n_tracks);
	for (size_t i = 0; i < g.n_tensors; i++)
		printf(" %s %ux%u", kvarc_dtype_name(g.tensors[i].dtype),
		       (unsigned)g.tensors[i].heads, (unsigned)g.tensors[i].channels);
	putchar('\n');
	kvarc_sink sink = { .write = write_file, .opaque = f };
	check(kvarc_writer_open(&w, &sink, &o), &error, "open");
	check(kvarc_writer_set_geometry(w, &g), &error, "geometry");
	if (below(2)) {
		const char *keys[] = { "engine", "model" };
		const char *values[] = { "generate", argv[1] };
		check(kvarc_writer_identity(w, 2, keys, values), &error, "identity");
	}
	for (uint32_t track = 0; track < g.n_tracks; track++)
		append_track(&w, &g, track, f, &o);
	check(kvarc_writer_close(&w), &error, "close");
	return fclose(f) ? 1 : 0;
}
