/* SPDX-License-Identifier: Apache-2.0 */
/* planted.c - the program with a bug: BAUTA_PLANT names it, BAUTA_PLANT_LAYER
 * the layer it is in. So that a test can see what the program says of one. */
#include "plants.h"

__attribute__((constructor)) static void choose(void)
{
    const char *layer = getenv("BAUTA_PLANT_LAYER");
    plant.name = getenv("BAUTA_PLANT");
    plant.layer = layer ? strtoul(layer, NULL, 10) : 0;
    atexit(garden_clear);
}
