/* SPDX-License-Identifier: Apache-2.0 */
/* gzip.c - a build without zlib; see text/io/gzip.h. */
#include "text/io/gzip.h"

#include "base/error.h"

bauta_status bt_gzip_create(bt_gzip **out, const char *name, bauta_error *err)
{
    *out = NULL;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "%s: is compressed with gzip, and this bauta was built "
                   "without zlib; pipe it: zcat FILE | bauta ... -",
                   name);
}

void bt_gzip_free(bt_gzip *gzip)
{
    (void)gzip;
}

bauta_status bt_gzip_inflate(bt_gzip *gzip, const unsigned char **in,
                             size_t *in_size, unsigned char **out,
                             size_t *out_size, bauta_error *err)
{
    (void)gzip, (void)in, (void)in_size, (void)out, (void)out_size, (void)err;
    return BAUTA_OK; // no object can exist
}

bauta_status bt_gzip_end(const bt_gzip *gzip, bauta_error *err)
{
    (void)gzip, (void)err;
    return BAUTA_OK;
}
