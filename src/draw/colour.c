/* SPDX-License-Identifier: Apache-2.0 */
/* colour.c - colour maps of even lightness, computed in CIE L*a*b* (D65). */
#include "draw/colour.h"

#include <math.h>

#define PI 3.14159265358979323846

typedef struct linear_rgb {
    double r, g, b; /* linear light, 0 to 1 inside the sRGB gamut */
} linear_rgb;

/* The inverse of the CIE L*a*b* function f, which is linear near black. */
static double lab_inverse(double t)
{
    const double bend = 6.0 / 29.0;
    return t > bend ? t * t * t : 3.0 * bend * bend * (t - 4.0 / 29.0);
}

/* Lightness, chroma and hue (degrees) to linear sRGB. */
static linear_rgb linear_srgb(double lightness, double chroma, double hue)
{
    double a = chroma * cos(hue * PI / 180.0);
    double b = chroma * sin(hue * PI / 180.0);
    double fy = (lightness + 16.0) / 116.0;
    double x = 0.95047 * lab_inverse(fy + a / 500.0);
    double y = lab_inverse(fy);
    double z = 1.08883 * lab_inverse(fy - b / 200.0);
    return (linear_rgb){ 3.2406 * x - 1.5372 * y - 0.4986 * z,
                         -0.9689 * x + 1.8758 * y + 0.0415 * z,
                         0.0557 * x - 0.2040 * y + 1.0570 * z };
}

static bool in_gamut(linear_rgb c)
{
    return c.r >= 0.0 && c.g >= 0.0 && c.b >= 0.0 && c.r <= 1.0 && c.g <= 1.0 &&
           c.b <= 1.0;
}

/* The transfer curve of sRGB. */
static uint8_t srgb_byte(double light)
{
    double v = light <= 0.0031308 ? 12.92 * light
                                  : 1.055 * pow(light, 1.0 / 2.4) - 0.055;
    v = v < 0.0 ? 0.0 : v > 1.0 ? 1.0 : v;
    return (uint8_t)(v * 255.0 + 0.5);
}

/* The colour with the largest chroma up to `chroma` that is in the gamut. */
static bt_colour lch_colour(double lightness, double chroma, double hue)
{
    linear_rgb c = linear_srgb(lightness, chroma, hue);
    while (!in_gamut(c) && chroma > 0.0) {
        chroma = chroma > 1.0 ? chroma - 1.0 : 0.0;
        c = linear_srgb(lightness, chroma, hue);
    }
    return (bt_colour){ srgb_byte(c.r), srgb_byte(c.g), srgb_byte(c.b) };
}

/* From pale yellow through green to deep violet; reversed for dark screens. */
static bt_colour weight_colour(double t, bool dark)
{
    double chroma = 6.0 + 56.0 * (t < 0.4 ? t / 0.4 : 1.0);
    return dark ? lch_colour(14.0 + 80.0 * t, chroma, 300.0 - 200.0 * t)
                : lch_colour(98.0 - 82.0 * t, chroma, 95.0 + 205.0 * t);
}

void bt_palette_init(bt_palette *palette, bool dark)
{
    for (size_t i = 0; i < BT_COLOURS; i++)
        palette->weight[i] = weight_colour((double)i / (BT_COLOURS - 1), dark);
    palette->hidden = lch_colour(dark ? 26.0 : 90.0, 2.0, 270.0);
    palette->hatch = lch_colour(dark ? 42.0 : 74.0, 3.0, 270.0);
    palette->seen = palette->weight[dark ? 150 : 110];
    palette->border = lch_colour(dark ? 68.0 : 50.0, 70.0, 45.0);
}

size_t bt_colour_index(float weight)
{
    float w = weight < 0.0f ? 0.0f : weight > 1.0f ? 1.0f : weight;
    return (size_t)(sqrtf(w) * (float)(BT_COLOURS - 1) + 0.5f);
}
