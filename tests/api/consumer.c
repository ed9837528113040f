/* SPDX-License-Identifier: BSD-3-Clause */
/* consumer.c - what a program outside the tree does: C11 or C++11, kvarc.h only */
#include <kvarc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	static uint16_t in[40 * 16], out[40 * 16];
	kvarc_track track;
	kvarc_tensor tensor;
	kvarc_geometry g;
	kvarc_view view;
	size_t i, n = 0;
	memset(&track, 0, sizeof track);
	memset(&tensor, 0, sizeof tensor);
	memset(&g, 0, sizeof g);
	memset(&view, 0, sizeof view);
	tensor.dtype = KVARC_F16;
	tensor.heads = 2;
	tensor.channels = 8;
	g.n_tracks = g.n_tensors = 1;
	g.tracks = &track;
	g.tensors = &tensor;
	for (i = 0; i < sizeof in / 2; i++)
		in[i] = (uint16_t)(0x3c00 + i * 7 % 500);
	view.data = in;
	view.token_stride = 16 * sizeof in[0];
	view.block_elems = 16;
	view.elem_stride = 2;
	size_t bound = kvarc_encode_bound(&g, 40);
	void *file = malloc(bound);
	if (!file || kvarc_encode_buffer(file, bound, &n, &g, 40, NULL, &view, NULL) != KVARC_OK)
		return 1;
	view.data = out;
	if (kvarc_decode_buffer(file, n, &view, 1, NULL) != KVARC_OK ||
	    memcmp(in, out, sizeof in) != 0)
		return 1;
	free(file);
	/* an importer, which links the libraries that read files; there is nothing to read */
	kvarc_import *im;
	kvarc_source source;
	memset(&source, 0, sizeof source);
	if (kvarc_import_open(&im, &source, "x", NULL) == KVARC_OK || im)
		return 1;
	printf("%s: %u bytes in %u\n", kvarc_version(), (unsigned)sizeof in, (unsigned)n);
	return strcmp(kvarc_version(), KVARC_VERSION_STRING) != 0;
}
