/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - bauta look: what a model looks at, and what a mask hides. */
#include "look.h"

#include "cli.h"

static int look_mask(const look_options *o)
{
    bauta_error err;
    bauta_mask *mask;
    if (bauta_mask_parse(&mask, o->mask, o->queries, o->keys, &err))
        return cli_usage("look", "--mask '%s': %s", o->mask, err.message);
    int failed = look_show_mask(mask, o);
    bauta_mask_free(mask);
    return failed;
}

static int look_model(const look_options *o)
{
    look_scene scene;
    look_views views = { .count = 0 };
    int failed = look_scene_open(&scene, o);
    if (!failed)
        failed = look_views_make(&views, &scene, o);
    if (!failed)
        failed = look_show(&scene, &views, o);
    look_views_release(&views);
    look_scene_close(&scene);
    return failed;
}

int look_main(int argc, char **argv)
{
    look_options o;
    int usage = look_options_read(&o, argc, argv);
    if (usage)
        return usage;
    if (o.help)
        return look_help();
    return o.model ? look_model(&o) : look_mask(&o);
}
