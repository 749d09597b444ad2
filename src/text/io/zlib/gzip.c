/* SPDX-License-Identifier: Apache-2.0 */
/* gzip.c - gzip with zlib; see text/io/gzip.h. */
#include "text/io/gzip.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"

#include <limits.h>
#include <zlib.h>

struct bt_gzip {
    z_stream stream;
    const char *name;
    bool inside; /* a member */
};

static voidpf zlib_alloc(voidpf user, uInt count, uInt size)
{
    (void)user;
    return bt_alloc_zero(count, size);
}

static void zlib_free(voidpf user, voidpf memory)
{
    (void)user;
    bt_free(memory);
}

bauta_status bt_gzip_create(bt_gzip **out, const char *name, bauta_error *err)
{
    enum { GZIP_ALONE = 16 + MAX_WBITS };
    bt_gzip *gzip = bt_alloc_zero(1, sizeof(*gzip));
    *out = NULL;
    if (!gzip)
        return bt_fail_memory(err, "gzip", sizeof(*gzip));
    gzip->name = name;
    gzip->stream.zalloc = zlib_alloc;
    gzip->stream.zfree = zlib_free;
    if (inflateInit2(&gzip->stream, GZIP_ALONE) != Z_OK) {
        bt_free(gzip);
        return bt_fail_memory(err, "gzip", sizeof(*gzip));
    }
    *out = gzip;
    return BAUTA_OK;
}

void bt_gzip_free(bt_gzip *gzip)
{
    if (!gzip)
        return;
    inflateEnd(&gzip->stream);
    bt_free(gzip);
}

bauta_status bt_gzip_inflate(bt_gzip *g, const unsigned char **in,
                             size_t *in_size, unsigned char **out,
                             size_t *out_size, bauta_error *err)
{
    z_stream *z = &g->stream;
    uInt given = (uInt)bt_size_min(*in_size, UINT_MAX);
    uInt room = (uInt)bt_size_min(*out_size, UINT_MAX);
    if (!g->inside && inflateReset(z) != Z_OK)
        return bt_fail(err, BAUTA_ERR_IO, "%s: gzip cannot begin", g->name);
    z->next_in = (unsigned char *)(uintptr_t)*in;
    z->avail_in = given;
    z->next_out = *out;
    z->avail_out = room;
    g->inside = true;
    int code = inflate(z, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR)
        return bt_fail_memory(err, "gzip", 0);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return bt_fail(err, BAUTA_ERR_FORMAT,
                       "%s: the gzip data are damaged: %s", g->name,
                       z->msg ? z->msg : "no more is known");
    g->inside = code != Z_STREAM_END;
    *in += given - z->avail_in;
    *in_size -= given - z->avail_in;
    *out += room - z->avail_out;
    *out_size -= room - z->avail_out;
    return BAUTA_OK;
}

bauta_status bt_gzip_end(const bt_gzip *gzip, bauta_error *err)
{
    return gzip->inside ? bt_fail(err, BAUTA_ERR_FORMAT,
                                  "%s: the gzip data end too early", gzip->name)
                        : BAUTA_OK;
}
