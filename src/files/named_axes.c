/* SPDX-License-Identifier: BSD-3-Clause */
/* named_axes.c - the axes of a named tensor by letters */
#include "named_axes.h"

#include <string.h>

#include "import_internal.h"

/* Where a letter stands, n: nowhere. */
static size_t index_of(const char *letters, size_t n, char letter)
{
	const char *p = memchr(letters, letter, n);
	return p ? (size_t)(p - letters) : n;
}

bool kvi_axes_of_state(const char *letters)
{
	return !strcmp(letters, "s");
}

bool kvi_axes_known(const char *letters)
{
	size_t n = strlen(letters);
	if (kvi_axes_of_state(letters))
		return true;
	if (n < 2 || n > KVI_NAMED_AXES_MAX)
		return false;
	char last = letters[n - 1];
	size_t tokens = index_of(letters, n, 't');
	if ((last != 'c' && last != 'p' && last != 'm') || tokens == n ||
	    (last != 'c' && memchr(letters, '2', n)))
		return false;
	for (size_t i = 0; i + 1 < n; i++) {
		if (!strchr("b2th1", letters[i]) || (letters[i] == 'b' && i > 0))
			return false;
		if (letters[i] != '1' && memchr(letters + i + 1, letters[i], n - i - 1))
			return false;
	}
	return true;
}

static bool fits(const struct kvi_axes *a)
{
	return a->batch && a->tokens && a->heads && a->channels && a->tokens <= UINT32_MAX &&
	       a->heads <= 65535 && a->channels <= 65535 &&
	       a->heads * a->channels <= KVI_IMPORT_WIDTH_MAX;
}

/* The file has that many elements: products of its axes do not overflow. */
static bool take_axis(struct kvi_axes *a, char letter, uint64_t size, uint64_t stride)
{
	switch (letter) {
	case 'b':
		a->batch = size;
		return true;
	case '2':
		a->parts = 2;
		a->part_stride = stride;
		return size == 2;
	case 't':
		a->tokens = size;
		a->token_stride = stride;
		return true;
	case 'h':
		a->heads = size;
		a->head_stride = stride;
		return true;
	case 'p':
		a->parts = 2;
		a->channels = a->part_stride = size / 2;
		return size % 2 == 0;
	case 'm':
		a->is_latent = true;
		a->channels = size;
		return true;
	case 'c':
		a->channels = size;
		return true;
	default:
		return size == 1;
	}
}

/* Rows of a matrix for each head, of a convolution the last inputs. */
static bool take_state(const struct kvi_named *x, struct kvi_axes *a)
{
	if (x->n_axes < 2)
		return false;
	const uint64_t channels = x->shape[x->n_axes - 1];
	*a = (struct kvi_axes){ .batch = 1, .parts = 1, .tokens = 1, .heads = 1 };
	a->is_state = true;
	a->channels = a->token_stride = a->head_stride = channels;
	for (size_t i = 0; i + 1 < x->n_axes; i++)
		a->tokens *= x->shape[i];
	a->is_conv = x->n_axes <= 3 && x->shape[x->n_axes - 2] < channels;
	return fits(a);
}

bool kvi_axes_take(const struct kvi_named *x, const char *letters, struct kvi_axes *a)
{
	size_t n = strlen(letters);
	uint64_t stride = 1;
	if (kvi_axes_of_state(letters))
		return take_state(x, a);
	if (n != x->n_axes || !kvi_axes_known(letters))
		return false;
	*a = (struct kvi_axes){ .batch = 1, .parts = 1, .heads = 1 };
	for (size_t i = n; i-- > 0;) {
		if (!x->shape[i] || !take_axis(a, letters[i], x->shape[i], stride))
			return false;
		stride *= x->shape[i];
	}
	size_t tokens = index_of(letters, n, 't'), heads = index_of(letters, n, 'h');
	size_t part = index_of(letters, n, '2');
	a->heads_first = heads < tokens;
	a->parts_apart = part < tokens && (heads == n || part < heads);
	if (heads == n || a->heads == 1)
		a->head_stride = a->channels;
	return fits(a);
}
