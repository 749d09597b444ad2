/* SPDX-License-Identifier: Apache-2.0 */
/* figure.c - the error of a build without cairo. */
#include "base/error.h"
#include "base/file.h"
#include "draw/picture.h"

bauta_status bt_figure_save(const bt_figure *figure, const char *path,
                            bt_picture_format format, bauta_error *err)
{
    (void)figure;
    (void)format;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "%s: this library was built without cairo, which draws PNG, "
                   "SVG and PDF; HTML (.html) works without it",
                   bt_path_tail(path));
}
