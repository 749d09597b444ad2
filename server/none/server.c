/* SPDX-License-Identifier: Apache-2.0 */
/* server.c - bauta serve in a build without libmicrohttpd. */
#include "../server.h"

#include "../../cli/cli.h"

int server_run(const server_options *options, const opened_model *models,
               size_t count)
{
    (void)options;
    (void)count;
    return cli_fail(models->verb,
                    "this build has no server: libmicrohttpd was missing "
                    "(Debian: libmicrohttpd-dev) when it was configured");
}
