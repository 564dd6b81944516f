/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The libdhisparse authors */

#include "layout.h"

#include "options.h"

#define MOST_LAYERS 4096
#define MOST_PAGE_ROWS 65536
#define LEAST_ROW_BYTES 16
#define MOST_ROW_BYTES 16384
/* Strides and offsets past this cannot be of one machine's memory. */
#define MOST_STRIDE ((uint64_t)1 << 48)

/* Where the rows of one segment of one layer lie: row r of page p at base +
 * p * page_stride + r * row_stride. */
struct piece {
	uint64_t base;
	uint64_t page_stride;
	uint64_t row_stride;
	uint64_t bytes;
};

static uint64_t footprint(const struct piece *a, uint32_t rows)
{
	return (rows - 1) * a->row_stride + a->bytes;
}

/* 1 if rows of a page at address `a_at` and of one at `b_at` share a byte.  Both lists of
 * rows ascend: walk them side by side. */
static int rows_overlap(const struct piece *a, uint64_t a_at, const struct piece *b, uint64_t b_at,
                        uint32_t rows)
{
	for (uint32_t i = 0, j = 0; i < rows && j < rows;) {
		uint64_t x = a_at + i * a->row_stride, y = b_at + j * b->row_stride;

		if (x < y + b->bytes && y < x + a->bytes)
			return 1;
		if (x < y)
			i++;
		else
			j++;
	}
	return 0;
}

/* The same in one step where both have one row stride: row i of a and row j of b are a
 * multiple of it further apart than their first rows. */
static int even_rows_overlap(const struct piece *a, uint64_t a_at, const struct piece *b,
                             uint64_t b_at, uint32_t rows)
{
	uint64_t apart = a_at <= b_at ? b_at - a_at : a_at - b_at, stride = a->row_stride;
	uint64_t low = a_at <= b_at ? a->bytes : b->bytes, high = a_at <= b_at ? b->bytes : a->bytes;
	uint64_t steps = apart / stride, rest = apart % stride;

	return (steps < rows && rest < low) || (steps + 1 < rows && stride - rest < high);
}

/* For pieces of one page stride: every page of b against the two or three pages
 * of a around it; all such pairs repeat those of one page, as far as there are pages. */
static int same_stride_overlap(const struct piece *a, const struct piece *b, uint32_t rows,
                               uint32_t pages)
{
	uint64_t stride = a->page_stride, ea = footprint(a, rows), eb = footprint(b, rows);
	const struct piece *low = a->base <= b->base ? a : b, *high = low == a ? b : a;
	uint64_t first = (high->base - low->base) / stride;

	for (uint64_t k = first ? first - 1 : 0; k <= first + 1 && k < pages; k++) {
		uint64_t low_at = low->base + k * stride;
		uint64_t low_end = low_at + (low == a ? ea : eb);
		uint64_t high_end = high->base + (high == a ? ea : eb);

		if (low_at < high_end && high->base < low_end &&
		    (low->row_stride == high->row_stride
		         ? even_rows_overlap(low, low_at, high, high->base, rows)
		         : rows_overlap(low, low_at, high, high->base, rows)))
			return 1;
	}
	return 0;
}

static int pieces_overlap(const struct piece *a, const struct piece *b, uint32_t rows,
                          uint32_t pages)
{
	uint64_t a_end = a->base + (pages - 1) * a->page_stride + footprint(a, rows);
	uint64_t b_end = b->base + (pages - 1) * b->page_stride + footprint(b, rows);

	if (a_end <= b->base || b_end <= a->base)
		return 0;
	/* Ranges that mix at different strides cannot be told apart simply: refused. */
	return a->page_stride != b->page_stride || same_stride_overlap(a, b, rows, pages);
}

static int fill_segment(const char *call, uint32_t i, dhs_segment *s)
{
	if (s->bytes < 4 || s->bytes % 4 || s->bytes > MOST_ROW_BYTES)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: layout->segment[%u].bytes is %u; it must be a multiple of 4, 4 to %d",
		                call, i, s->bytes, MOST_ROW_BYTES);
	if (s->flags)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->segment[%u].flags is %#x; no flag is known",
		                call, i, s->flags);
	if (!s->row_stride)
		s->row_stride = s->bytes;
	if (s->offset % 4 || s->row_stride % 4 || s->page_stride % 4)
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: layout->segment[%u]: offset %llu, row_stride %llu and page_stride %llu "
			"must be multiples of 4",
			call, i, (unsigned long long)s->offset, (unsigned long long)s->row_stride,
			(unsigned long long)s->page_stride);
	if (s->offset > MOST_STRIDE || s->row_stride > MOST_STRIDE || s->page_stride > MOST_STRIDE)
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: layout->segment[%u]: offset %llu, row_stride %llu and page_stride %llu are "
			"at most 2^48 each",
			call, i, (unsigned long long)s->offset, (unsigned long long)s->row_stride,
			(unsigned long long)s->page_stride);
	if (s->row_stride < s->bytes)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: layout->segment[%u].row_stride is %llu; rows of %u bytes overlap",
		                call, i, (unsigned long long)s->row_stride, s->bytes);
	return DHS_OK;
}

/* Segments of a page one behind the other, for those who leave it to us. */
static int pack(const char *call, struct dhs_layout_copy *c)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < c->layout.segments; i++) {
		dhs_segment *s = &c->segment[i];

		if (s->page_stride || s->offset)
			return dhs_fail(
				DHS_ERR_ARGUMENT,
				"%s: layout->segment[%u]: page_stride is 0 for segment 0, so it and the "
				"offset must be 0 for all",
				call, i);
		s->offset = at;
		at += c->layout.page_rows * s->row_stride;
	}
	for (uint32_t i = 0; i < c->layout.segments; i++)
		c->segment[i].page_stride = at;
	return DHS_OK;
}

static int check_pages(const char *call, const struct dhs_layout_copy *c, int owns_pool)
{
	for (uint32_t i = 0; i < c->layout.segments; i++) {
		const dhs_segment *s = &c->segment[i];
		uint64_t end = (c->layout.page_rows - 1) * s->row_stride + s->bytes;

		if (owns_pool)
			end += s->offset;
		if (s->page_stride < end)
			return dhs_fail(
				DHS_ERR_ARGUMENT,
				"%s: layout->segment[%u].page_stride is %llu; a page of %u rows ends at "
				"byte %llu",
				call, i, (unsigned long long)s->page_stride, c->layout.page_rows,
				(unsigned long long)end);
		if (owns_pool && s->page_stride != c->segment[0].page_stride)
			return dhs_fail(
				DHS_ERR_ARGUMENT,
				"%s: layout->segment[%u].page_stride is %llu and that of segment 0 %llu; "
				"in a library-owned pool they are the same",
				call, i, (unsigned long long)s->page_stride,
				(unsigned long long)c->segment[0].page_stride);
	}
	return DHS_OK;
}

static struct piece piece_of(const dhs_segment *s, uint64_t base)
{
	return (struct piece){ base + s->offset, s->page_stride, s->row_stride, s->bytes };
}

static int check_segments_apart(const char *call, const struct dhs_layout_copy *c)
{
	for (uint32_t i = 0; i < c->layout.segments; i++)
		for (uint32_t j = 0; j < i; j++) {
			struct piece a = piece_of(&c->segment[j], 0), b = piece_of(&c->segment[i], 0);

			if (pieces_overlap(&a, &b, c->layout.page_rows, 1))
				return dhs_fail(DHS_ERR_ARGUMENT,
				                "%s: layout->segment[%u] and segment[%u] overlap in a page", call,
				                j, i);
		}
	return DHS_OK;
}

static int read_segments(const char *call, const dhs_layout *l, int owns_pool,
                         struct dhs_layout_copy *c)
{
	int rc = DHS_OK;

	if (l->segments < 1 || l->segments > DHS_MAX_SEGMENTS)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->segments is %u; it must be 1 to %d", call,
		                l->segments, DHS_MAX_SEGMENTS);
	if (!l->segment)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->segment is NULL", call);
	if (l->segment_size < sizeof(dhs_segment) || l->segment_size > 4096)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->segment_size is %u; it must be %zu to 4096",
		                call, l->segment_size, sizeof(dhs_segment));
	for (uint32_t i = 0; rc == DHS_OK && i < l->segments; i++) {
		rc = dhs_options_read_element(call, "layout->segment", i, l->segment, l->segment_size,
		                              &c->segment[i], sizeof(dhs_segment));
		if (rc == DHS_OK)
			rc = fill_segment(call, i, &c->segment[i]);
		c->row_bytes += c->segment[i].bytes;
	}
	if (rc)
		return rc;
	if (c->row_bytes < LEAST_ROW_BYTES || c->row_bytes > MOST_ROW_BYTES)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: the segments of a row have %u bytes together; it must be %d to %d",
		                call, c->row_bytes, LEAST_ROW_BYTES, MOST_ROW_BYTES);
	for (uint32_t i = 0; i < l->segments && !owns_pool; i++)
		if (!c->segment[i].page_stride)
			c->segment[i].page_stride = l->page_rows * c->segment[i].row_stride;
	if (owns_pool && !c->segment[0].page_stride)
		rc = pack(call, c);
	if (rc == DHS_OK)
		rc = check_pages(call, c, owns_pool);
	return rc == DHS_OK && owns_pool ? check_segments_apart(call, c) : rc;
}

uint32_t dhs_layout_group_layers(const struct dhs_layout_copy *copy, uint32_t g)
{
	return copy->layout.group_layers ? copy->layout.group_layers[g] : 1;
}

static int check_groups(const char *call, struct dhs_layout_copy *c)
{
	dhs_layout *l = &c->layout;
	uint64_t layers = 0;

	if (!l->groups && l->group_layers)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->groups is 0 and group_layers is not NULL",
		                call);
	if (!l->groups)
		l->groups = l->layers;
	if (l->group_layers) {
		int rc = dhs_options_check_pointer(call, "layout->group_layers", l->group_layers,
		                                   sizeof(*l->group_layers));

		if (rc)
			return rc;
	}
	if (l->groups > l->layers)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->groups is %u; there are %u layers", call,
		                l->groups, l->layers);
	if (!l->group_layers && l->groups != l->layers)
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: layout->group_layers is NULL; with %u groups of %u layers it is needed", call,
			l->groups, l->layers);
	for (uint32_t g = 0; g < l->groups; g++) {
		if (!dhs_layout_group_layers(c, g))
			return dhs_fail(DHS_ERR_ARGUMENT,
			                "%s: layout->group_layers[%u] is 0; a group has at least one layer",
			                call, g);
		layers += dhs_layout_group_layers(c, g);
	}
	if (layers != l->layers)
		return dhs_fail(DHS_ERR_ARGUMENT,
		                "%s: layout->group_layers sum to %llu; layout->layers is %u", call,
		                (unsigned long long)layers, l->layers);
	return DHS_OK;
}

int dhs_layout_read(const char *call, const dhs_layout *from, int owns_pool,
                    struct dhs_layout_copy *copy)
{
	dhs_layout *l = &copy->layout;
	int rc;

	*copy = (struct dhs_layout_copy){ 0 };
	rc = dhs_options_read(call, "options->layout", from, l, sizeof(*l), sizeof(*l));
	if (rc)
		return rc;
	if (l->flags)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->flags is %#x; no flag is known", call,
		                l->flags);
	if (l->layers < 1 || l->layers > MOST_LAYERS)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->layers is %u; it must be 1 to %d", call,
		                l->layers, MOST_LAYERS);
	l->page_rows = l->page_rows ? l->page_rows : 64;
	l->tokens_per_row = l->tokens_per_row ? l->tokens_per_row : 1;
	if (l->page_rows > MOST_PAGE_ROWS)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: layout->page_rows is %u; it must be 1 to %d", call,
		                l->page_rows, MOST_PAGE_ROWS);
	rc = check_groups(call, copy);
	if (rc == DHS_OK)
		rc = read_segments(call, l, owns_pool, copy);
	copy->page_stride = copy->segment[0].page_stride;
	return rc;
}

static int check_base(const char *call, const struct dhs_layout_copy *c, const void *base,
                      uint32_t layer, uint32_t i, uint32_t pages)
{
	const dhs_segment *s = &c->segment[i];
	uint64_t end = (uint64_t)(uintptr_t)base, span;

	if (!base)
		return dhs_fail(DHS_ERR_ARGUMENT, "%s: options->pool of layer %u, segment %u is NULL", call,
		                layer, i);
	if (end % 4)
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: options->pool of layer %u, segment %u is %p; it must be a multiple of 4", call,
			layer, i, base);
	if (__builtin_mul_overflow((uint64_t)(pages - 1), s->page_stride, &span) ||
	    __builtin_add_overflow(end, span, &end) ||
	    __builtin_add_overflow(end, s->offset + s->page_stride, &end))
		return dhs_fail(
			DHS_ERR_ARGUMENT,
			"%s: options->pool of layer %u, segment %u is %p: %u pages of stride %llu do not "
			"fit in 64 bits",
			call, layer, i, base, pages, (unsigned long long)s->page_stride);
	return DHS_OK;
}

int dhs_layout_check_pool(const char *call, const struct dhs_layout_copy *copy, void *const *pool,
                          uint32_t pages)
{
	uint32_t segments = copy->layout.segments, all = copy->layout.layers * segments;

	for (uint32_t i = 0; i < all; i++) {
		int rc = check_base(call, copy, pool[i], i / segments, i % segments, pages);

		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < all; i++)
		for (uint32_t j = 0; j < i; j++) {
			struct piece a = piece_of(&copy->segment[i % segments], (uintptr_t)pool[i]);
			struct piece b = piece_of(&copy->segment[j % segments], (uintptr_t)pool[j]);

			if (pieces_overlap(&a, &b, copy->layout.page_rows, pages))
				return dhs_fail(
					DHS_ERR_ARGUMENT,
					"%s: options->pool: segment %u of layer %u and segment %u of layer %u "
					"overlap",
					call, j % segments, j / segments, i % segments, i / segments);
		}
	return DHS_OK;
}
