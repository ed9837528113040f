/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * micro_gate.c - bits of tier had at the error of other quantisers, on normal data
 *
 * had goes through writer and reader, and its bits are those of the whole archive; between two
 * rates bits are linear in the logarithm of the error. Against it:
 * lloyd-max 4: 16 levels, the best there are for normal data, and a norm in fp16 for each 128
 *              (what rotating quantisers come to): 4.125 bits;
 * int4/32:     -7..7 and a scale in fp16 for each 32: 4.5 bits.
 * The same data in every run; status 1 when had is not as far below them as it has to be.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvarc.h>

enum {
	TOKENS = 1024,
	HEADS = 4,
	CHANNELS = 128,
	WIDTH = HEADS * CHANNELS,
	N = TOKENS * WIDTH,
	FIRST = 32,
	LAST = 96,
	STEP = 8,
	RATES = (LAST - FIRST) / STEP + 1
};

static float data[N], back[N];
static const kvarc_tensor tensor = {
	.kind = KVARC_VALUE, .dtype = KVARC_F32, .heads = HEADS, .channels = CHANNELS
};
static const kvarc_track track = { .label = "" };
static const kvarc_geometry geometry = {
	.n_tracks = 1, .n_tensors = 1, .tracks = &track, .tensors = &tensor
};

static void check(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "micro_gate: %s: %s\n", what, kvarc_strerror(ret));
	exit(2);
}

static double uniform(void)
{
	static uint64_t state = 20260917;
	state = state * 6364136223846793005u + 1442695040888963407u;
	return ((double)(state >> 11) + 0.5) / 9007199254740992.0;
}

static void make_data(void)
{
	for (size_t i = 0; i < N; i += 2) {
		double size = sqrt(-2 * log(uniform())), turn = 6.283185307179586 * uniform();
		data[i] = (float)(size * cos(turn));
		data[i + 1] = (float)(size * sin(turn));
	}
}

static double error_of(const float *x)
{
	double sum = 0;
	for (size_t i = 0; i < N; i++)
		sum += ((double)x[i] - data[i]) * ((double)x[i] - data[i]);
	return sum / N;
}

/* To 11 significant bits, as fp16 has; sizes here are near 1. */
static double half(double x)
{
	int e;
	double m = frexp(x, &e);
	return ldexp(rint(ldexp(m, 11)), e - 11);
}

static double lloyd_max(void)
{
	/* J. Max, Quantizing for minimum distortion (1960), 16 levels. */
	static const double level[] = {
		0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733
	};
	enum { LEVELS = 8, BLOCK = 128 };
	for (size_t at = 0; at < N; at += BLOCK) {
		double sum = 0;
		for (size_t i = at; i < at + BLOCK; i++)
			sum += (double)data[i] * data[i];
		double scale = half(sqrt(sum / BLOCK));
		for (size_t i = at; i < at + BLOCK; i++) {
			double x = fabs((double)data[i]) / scale;
			int k = 0;
			while (k < LEVELS - 1 && x > (level[k] + level[k + 1]) / 2)
				k++;
			back[i] = (float)copysign(level[k] * scale, data[i]);
		}
	}
	return error_of(back);
}

static double int4(void)
{
	enum { BLOCK = 32, MOST = 7 };
	for (size_t at = 0; at < N; at += BLOCK) {
		double most = 0;
		for (size_t i = at; i < at + BLOCK; i++)
			most = fmax(most, fabs((double)data[i]));
		double scale = half(most / MOST);
		for (size_t i = at; i < at + BLOCK; i++) {
			double q = rint(data[i] / scale);
			back[i] = (float)(fmax(-MOST, fmin(MOST, q)) * scale);
		}
	}
	return error_of(back);
}

struct archive {
	uint8_t *p;
	size_t n;
};

static int put(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct archive *a = opaque;
	if (offset != a->n || bytes > 8 * sizeof data - a->n)
		return -1;
	memcpy(a->p + a->n, buf, bytes);
	a->n += bytes;
	return 0;
}

static int64_t get(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct archive *a = opaque;
	memcpy(buf, a->p + offset, bytes);
	return (int64_t)bytes;
}

/* Bits of had at a rate, and *error. */
static double had(struct archive *a, int rate, double *error)
{
	kvarc_lossy tier = { .tier = KVARC_TIER_HAD, .rate = rate };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_view view = { .data = data,
		            .token_stride = WIDTH * sizeof *data,
		            .block_elems = WIDTH,
		            .elem_stride = sizeof *data };
	kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_writer *w;
	kvarc_reader *r;
	a->n = 0;
	wo.lossy = &tier;
	wo.flags = KVARC_WRITE_FILE_ID;
	kvarc_sink sink = { .write = put, .opaque = a };
	check(kvarc_writer_open(&w, &sink, &wo), "open");
	check(kvarc_writer_set_geometry(w, &geometry), "geometry");
	check(kvarc_writer_append(w, 0, TOKENS, NULL, NULL, &view), "append");
	check(kvarc_writer_close(&w), "close");
	kvarc_source source = { .read = get, .opaque = a, .size = a->n };
	ro.flags = KVARC_READ_ALLOW_LOSSY;
	view.data = back;
	check(kvarc_reader_open(&r, &source, &ro), "read");
	check(kvarc_reader_read(r, &all, &view), "decode");
	kvarc_reader_close(&r);
	*error = error_of(back);
	return 8.0 * (double)a->n / N;
}

int main(void)
{
	static const char *const names[] = { "lloyd-max 4, norm per 128", "int4, scale per 32" };
	static const double bits[] = { 4.125, 4.5 }, wanted[] = { 0.35, 0.8 };
	double size[RATES], error[RATES], other[2];
	struct archive a = { malloc(8 * sizeof data), 0 };
	int bad = !a.p;
	if (bad)
		return 2;
	make_data();
	other[0] = lloyd_max();
	other[1] = int4();
	for (int i = 0; i < RATES; i++) {
		size[i] = had(&a, FIRST + STEP * i, &error[i]);
		printf("had:%-4g %8.4f bits, error %.6f\n", (FIRST + STEP * i) / 16.0, size[i],
		       error[i]);
	}
	for (int k = 0; k < 2; k++) {
		int i = 0;
		while (i < RATES - 2 && error[i + 1] > other[k])
			i++;
		double t = log(other[k] / error[i]) / log(error[i + 1] / error[i]);
		double had_bits = size[i] + t * (size[i + 1] - size[i]);
		double less = bits[k] - had_bits;
		int fine = t >= 0 && t <= 1 && less >= wanted[k];
		printf("%s: %.3f bits, error %.6f; had %.4f bits there, %.4f less "
		       "(%.2f wanted): %s\n",
		       names[k], bits[k], other[k], had_bits, less, wanted[k],
		       fine ? "good" : "BAD");
		bad |= !fine;
	}
	free(a.p);
	return bad;
}
