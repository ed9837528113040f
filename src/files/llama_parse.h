/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_parse.h - llama.cpp slot, session and state files as sections and matrices */
#ifndef KVI_LLAMA_PARSE_H
#define KVI_LLAMA_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "parse/scan.h"
#include "util/alloc.h"

/* Magic numbers of llama.cpp files. */
enum {
	KVI_LLAMA_SEQ_MAGIC = 0x67677371,        /* "ggsq" */
	KVI_LLAMA_SESSION_MAGIC = 0x6767736e,    /* "ggsn" */
	KVI_LLAMA_APPENDIX_MAGIC = 0x504b4353,   /* "SCKP": context checkpoints */
	KVI_LLAMA_COMPRESSED_MAGIC = 0x34565344, /* "DSV4": the memory of DeepSeek V4 */
	KVI_LLAMA_NO_BLOB = UINT32_MAX
};

/* The rows of one tensor of one layer and stream. */
struct kvi_llama_matrix {
	uint64_t at, bytes; /* offset and size of the elements */
	uint64_t row_bytes; /* trans: bytes of one element */
	uint32_t width;     /* elements a token; 0: no tensor, bytes as they are */
	int32_t type;       /* ggml type */
	bool trans;         /* channel-major */
};

/* Kind of a section; only those of KV memories have cells. */
enum kvi_llama_kind {
	KVI_LLAMA_KV,         /* n_layers key matrices, then as many of values if it has values */
	KVI_LLAMA_STATES,     /* n_layers R matrices, then as many S */
	KVI_LLAMA_HISTORY,    /* between states: a matrix for each layer with an n-gram history */
	KVI_LLAMA_COMPRESSED, /* n_layers key matrices, each of whose rows is of several tokens */
	KVI_LLAMA_COMPRESSOR  /* for each layer, rows of its compressor and rows of their scores */
};

/* A stream of a KV memory, or a part of another memory. */
struct kvi_llama_section {
	enum kvi_llama_kind kind;
	uint32_t blob; /* number among the sections of its kind; streams have the same one */
	uint32_t stream;
	uint32_t n_streams;  /* streams of the memory, empty ones included */
	uint32_t checkpoint; /* 0: the slot itself, else 1 + number of the checkpoint */
	bool held;           /* context checkpoints hold the memory, as it cannot be rewound */
	uint32_t n_cells;    /* cells or rows; never 0: empty streams make no section */
	uint32_t n_layers;
	bool values;                     /* there are two matrices a layer */
	uint32_t rotation_k, rotation_v; /* Hadamard sizes, version 4; 0: none */
	uint32_t ratio;                  /* tokens of a row; 0: one, or not known */
	uint64_t cells_at;
	uint64_t end; /* end of the last matrix, and of those of values without bytes behind it */
	size_t first_matrix;
};

/*
 * Facts of a file that are not in it. A file is understood when exactly one
 * grammar reads it to its exact end.
 */
struct kvi_llama_grammar {
	bool session; /* ggsn */
	uint32_t version;
	bool outputs;      /* logits and embeddings before the memory (old ggsn) */
	bool streams;      /* stream count present (not in old files) */
	uint8_t ext_bytes; /* extra bytes of a cell, for models with M-RoPE or an n-gram history */
};

/* Number of matrices of a section. */
static inline size_t kvi_llama_section_matrices(const struct kvi_llama_section *section)
{
	return (size_t)section->n_layers * (section->values ? 2 : 1);
}

/* The memories that follow each other in a slot or in the state of a checkpoint. */
struct kvi_llama_memories {
	uint32_t n, empty;  /* all of them; those without a cell */
	uint32_t n_kv;      /* KV memories */
	uint32_t held_blob; /* the KV memory that context checkpoints hold, or KVI_LLAMA_NO_BLOB */
	bool recurrent;     /* there are recurrent states */
	bool compressed;    /* the memory of DeepSeek V4: it can be kept whole, not shortened */
};

/* A context checkpoint (the state before token n_tokens), as the server appends it. */
struct kvi_llama_checkpoint {
	uint64_t at, end; /* begin and end of its record */
	uint64_t n_tokens;
	uint64_t state_at, state_bytes; /* offset and size of the model's state */
	bool understood;                /* the state was read as sections */
};

/* The offsets of the parts of a llama.cpp file. */
struct kvi_llama_file {
	struct kvi_llama_grammar grammar;
	struct kvi_llama_memories memories; /* those of the slot itself */
	uint64_t memory_at;
	uint64_t appendix_at; /* offset of data that the server appended, 0: none */
	uint64_t tokens_at;   /* text token ids, 0 when they are not plain */
	uint32_t n_tokens;
	struct kvi_llama_section *sections;
	struct kvi_llama_matrix *matrices;
	struct kvi_llama_checkpoint *checkpoints;
	size_t n_sections, cap_sections, n_matrices, cap_matrices;
	size_t n_checkpoints, cap_checkpoints;
};

/*
 * Returns OK; END when this is no such file (version 0) or not understood (version set;
 * *why says what is the matter); IO, MEM, MEMLIMIT. On OK free with kvi_llama_free.
 */
kvarc_ret kvi_llama_parse(struct kvi_llama_file *file, const struct kvi_alloc *alloc,
                          struct kvi_scan *scan, const char **why);
/*
 * As kvi_llama_parse for a bare state of one sequence (llama_state_seq_get_data), which begins at
 * an offset and ends where the scan does: no version (the newest that fits is used), no token ids.
 */
kvarc_ret kvi_llama_parse_state(struct kvi_llama_file *file, const struct kvi_alloc *alloc,
                                struct kvi_scan *scan, uint64_t at, const char **why);
/* Frees what kvi_llama_parse allocated; *file is empty afterwards. */
void kvi_llama_free(struct kvi_llama_file *file, const struct kvi_alloc *alloc);
/* Reads the next cell: its position. False at a damaged one. */
bool kvi_llama_cell(struct kvi_scan *scan, const struct kvi_llama_grammar *grammar,
                    int32_t *position);

#endif
