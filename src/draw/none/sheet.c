/* SPDX-License-Identifier: Apache-2.0 */
/* sheet.c - sheets where the library was built without cairo: none. */
#include "base/error.h"
#include "base/file.h"
#include "draw/picture.h"

bauta_status bt_sheet_save(const bt_sheet *sheet, const char *path,
                           bt_format format, bauta_error *err)
{
    (void)sheet;
    (void)format;
    return bt_fail(err, BAUTA_ERR_UNSUPPORTED,
                   "%s: this library was built without cairo, which draws PNG, "
                   "SVG and PDF; a page (.html) can be written",
                   bt_path_tail(path));
}
