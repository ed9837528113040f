/* SPDX-License-Identifier: BSD-3-Clause */
/* small_model.c - a transformer of three layers, and caches of it */
#include "config.h"

#include "small_model.h"

#include <stdio.h>
#include <unistd.h>

#include "numeric/rope_search.h"

/* ---- a model as a folder, in bf16 ---- */

char folder[] = "small-model-XXXXXX";

static float normal(uint64_t *seed)
{
	int sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (int)(rand_next(seed) >> 56);
	return (float)(sum - 510) * 0x1p-8f;
}

struct model_writing {
	FILE *data;
	char header[16384];
	size_t n, bytes;
	uint64_t seed;
};

static void tensor(struct model_writing *w, const char *name, size_t rows, size_t columns,
                   float scale, float plus)
{
	size_t bytes = 2 * rows * columns;
	for (size_t i = 0; i < rows * columns; i++) {
		float f = normal(&w->seed) * scale + plus;
		uint32_t b;
		memcpy(&b, &f, sizeof b);
		fputc((int)(b >> 16 & 255), w->data);
		fputc((int)(b >> 24), w->data);
	}
	char shape[40];
	snprintf(shape, sizeof shape, rows > 1 ? "%zu,%zu" : "%zu", rows > 1 ? rows : columns,
	         columns);
	w->n += (size_t)snprintf(w->header + w->n, sizeof w->header - w->n,
	                         "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],"
	                         "\"data_offsets\":[%zu,%zu]}",
	                         w->n ? ',' : '{', name, shape, w->bytes, w->bytes + bytes);
	w->bytes += bytes;
}

static void layer_tensors(struct model_writing *w, int layer)
{
	static const struct {
		const char *name;
		size_t rows, columns;
	} t[] = {
		{ "input_layernorm", 1, WIDTH },
		{ "self_attn.q_proj", HEADS * CHANNELS, WIDTH },
		{ "self_attn.k_proj", KV, WIDTH },
		{ "self_attn.v_proj", KV, WIDTH },
		{ "self_attn.o_proj", WIDTH, HEADS * CHANNELS },
		{ "post_attention_layernorm", 1, WIDTH },
		{ "mlp.gate_proj", FFN, WIDTH },
		{ "mlp.up_proj", FFN, WIDTH },
		{ "mlp.down_proj", WIDTH, FFN },
	};
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		char name[80];
		bool norm = t[i].rows == 1;
		snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, t[i].name);
		tensor(w, name, t[i].rows, t[i].columns, .15f, norm ? 1 : 0);
	}
}

static FILE *create(const char *name)
{
	char path[80];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return fopen(path, "wb");
}

int make_folder(void)
{
	struct model_writing w = { .data = tmpfile(), .seed = 1 };
	if (!mkdtemp(folder) || !w.data)
		return -1;
	tensor(&w, "model.embed_tokens.weight", WORDS, WIDTH, 1, 0);
	/* so small that the head does not repeat the last word */
	tensor(&w, "model.norm.weight", 1, WIDTH, .01f, .05f);
	for (int i = 0; i < LAYERS; i++)
		layer_tensors(&w, i);
	w.header[w.n++] = '}';
	FILE *f = create("model.safetensors"), *config = create("config.json");
	if (!f || !config)
		return -1;
	for (int i = 0; i < 8; i++)
		fputc((int)((uint64_t)w.n >> 8 * i & 255), f);
	fwrite(w.header, 1, w.n, f);
	rewind(w.data);
	for (int c; (c = fgetc(w.data)) != EOF;)
		fputc(c, f);
	fclose(w.data);
	fprintf(config,
	        "{\"model_type\":\"llama\",\"num_hidden_layers\":%d,"
	        "\"hidden_size\":%d,\"num_attention_heads\":%d,"
	        "\"num_key_value_heads\":%d,\"head_dim\":%d,"
	        "\"intermediate_size\":%d,\"rms_norm_eps\":1e-05,"
	        "\"hidden_act\":\"silu\",\"rope_theta\":10000.0,"
	        "\"vocab_size\":%d,\"tie_word_embeddings\":true,"
	        "\"_name_or_path\":\"a/small\"}\n",
	        LAYERS, WIDTH, HEADS, KV_HEADS, CHANNELS, FFN, WORDS);
	return fclose(f) + fclose(config);
}

void remove_folder(void)
{
	char path[80];
	snprintf(path, sizeof path, "%s/model.safetensors", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/config.json", folder);
	unlink(path);
	rmdir(folder);
}

bool reads_folders(void)
{
	struct kvi_alloc alloc;
	struct kvi_model_file *m = NULL;
	kvarc_error e;
	kvi_alloc_init(&alloc, NULL, 0);
	bool ok = kvi_model_file_open(&m, &alloc, folder, &e) != KVARC_OPTIONS;
	kvi_model_file_close(&m);
	return ok;
}

/* ---- its caches, as an engine in bf16 with a little noise makes them ---- */

void engine_open(struct engine *e, unsigned level, unsigned round_to)
{
	const struct kvi_arithmetic a = kvi_engine_level(level).arithmetic;
	kvarc_error error;
	memset(e, 0, sizeof *e);
	kvi_alloc_init(&e->alloc, NULL, 0);
	assert_int_equal(kvi_pool_open(&e->pool, &e->alloc, 1), KVARC_OK);
	assert_int_equal(kvi_model_file_open(&e->file, &e->alloc, folder, &error), KVARC_OK);
	assert_int_equal(kvi_engine_open(&e->engine, &e->alloc, e->file, &a, e->pool, &error),
	                 KVARC_OK);
	const struct kvi_run_options o = {
		.engine = e->engine, .alloc = &e->alloc, .pool = e->pool, .round_to = round_to
	};
	assert_int_equal(kvi_run_open(&e->run, &o), KVARC_OK);
}

void engine_close(struct engine *e)
{
	kvi_run_close(&e->run);
	kvi_engine_close(&e->engine);
	kvi_model_file_close(&e->file);
	kvi_pool_close(e->pool);
}

size_t channel(size_t slot)
{
	size_t i = slot % CHANNELS;
	return slot - i + i / 2 + (i & 1 ? CHANNELS / 2 : 0);
}

static void put(uint8_t *to, float f)
{
	uint32_t b;
	memcpy(&b, &f, sizeof b);
	to[0] = (uint8_t)(b >> 16);
	to[1] = (uint8_t)(b >> 24);
}

float get(const uint8_t *from)
{
	uint32_t b = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 24;
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

static void make_layer(struct engine *e, struct cache *c, size_t layer, size_t at, size_t n,
                       float noise, uint64_t *seed)
{
	static float k[256 * KV], v[256 * KV];
	struct kvi_hidden h = kvi_run_hidden(e->run);
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < WIDTH; i++)
			h.h[t * h.width + i] += normal(seed) * noise;
	struct kvi_predicted p = kvi_run_predict(e->run);
	for (size_t t = 0; t < n; t++) {
		memcpy(k + t * KV, p.k + t * p.stride, KV * sizeof *k);
		memcpy(v + t * KV, p.v + t * p.stride, KV * sizeof *v);
	}
	kvi_run_rotate(e->run, k, KV);
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < KV; i++) {
			size_t row = (at + t) * KV;
			put(c->data[2 * layer] + 2 * (row + channel(i)), k[t * KV + i]);
			put(c->data[2 * layer + 1] + 2 * (row + i), v[t * KV + i]);
		}
	assert_int_equal(kvi_run_advance(e->run, k, v, KV, true), KVARC_OK);
}

void make(struct cache *c, uint64_t seed, float noise)
{
	static struct kvi_rope rope;
	struct engine e;
	memset(c, 0, sizeof *c);
	assert_true(kvi_rope_make(&rope, 10000, CHANNELS, KVARC_ROPE_HALF));
	c->ropes[0] =
		(kvarc_rope){ .pairing = rope.pairing, .rotary = rope.rotary, .freq = rope.freq };
	c->g.n_ropes = c->g.n_tracks = 1;
	c->g.n_tensors = 2 * LAYERS;
	c->n[0] = TOKENS;
	for (uint32_t i = 0; i < 2 * LAYERS; i++)
		c->tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                        .kind = i & 1,
			                        .dtype = KVARC_BF16,
			                        .heads = KV_HEADS,
			                        .channels = CHANNELS,
			                        .rope = !(i & 1) };
	cache_link(c);
	for (int t = 0; t < TOKENS; t++) {
		c->positions[0][t] = t;
		c->ids[0][t] = (int32_t)(rand_next(&seed) % WORDS);
	}
	engine_open(&e, 7, KVARC_BF16);
	for (size_t at = 0, n; at < TOKENS; at += n) {
		n = TOKENS - at < 256 ? TOKENS - at : 256;
		assert_int_equal(kvi_run_segment(e.run, c->ids[0] + at, c->positions[0] + at, n),
		                 KVARC_OK);
		for (size_t l = 0; l < LAYERS; l++)
			make_layer(&e, c, l, at, n, noise, &seed);
	}
	engine_close(&e);
}
