/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - categories of characters; see unicode.h.
 *
 * Categories come from utf8proc, whose Unicode is newer than that of Hugging
 * Face's library. Models were trained with the older tables, so a character
 * that utf8proc calls a mark, punctuation or control, and the library (0.23,
 * asked about every character) does not, is none here either: the lists below.
 * ASCII is decided without looking at any table. */
#include "text/unicode.h"

#include "base/error.h"

#include <string.h>
#include <utf8proc.h>

typedef struct range {
    uint32_t first, last;
} range;

/* Nonspacing marks, punctuation and control characters that are newer. */
static const range newer[] = {
    { 0x61D, 0x61D },     { 0x7FD, 0x7FD },     { 0x890, 0x891 },
    { 0x898, 0x89F },     { 0x8CA, 0x8E2 },     { 0x9FD, 0x9FE },
    { 0xA76, 0xA76 },     { 0xAFA, 0xAFF },     { 0xB55, 0xB55 },
    { 0xC04, 0xC04 },     { 0xC3C, 0xC3C },     { 0xC77, 0xC77 },
    { 0xC84, 0xC84 },     { 0xD00, 0xD00 },     { 0xD3B, 0xD3C },
    { 0xD81, 0xD81 },     { 0xEBA, 0xEBA },     { 0xECE, 0xECE },
    { 0x180F, 0x180F },   { 0x1885, 0x1886 },   { 0x1ABF, 0x1ACE },
    { 0x1B7D, 0x1B7E },   { 0x1DF6, 0x1DFB },   { 0x2E43, 0x2E4F },
    { 0x2E52, 0x2E5D },   { 0xA82C, 0xA82C },   { 0xA8C5, 0xA8C5 },
    { 0xA8FF, 0xA8FF },   { 0xA9BD, 0xA9BD },   { 0x10D24, 0x10D27 },
    { 0x10EAB, 0x10EAD }, { 0x10EFD, 0x10EFF }, { 0x10F46, 0x10F50 },
    { 0x10F55, 0x10F59 }, { 0x10F82, 0x10F89 }, { 0x11070, 0x11070 },
    { 0x11073, 0x11074 }, { 0x110C2, 0x110C2 }, { 0x110CD, 0x110CD },
    { 0x111C9, 0x111C9 }, { 0x111CF, 0x111CF }, { 0x1123E, 0x1123E },
    { 0x11241, 0x11241 }, { 0x1133B, 0x1133B }, { 0x11438, 0x1143F },
    { 0x11442, 0x11444 }, { 0x11446, 0x11446 }, { 0x1144B, 0x1144F },
    { 0x1145A, 0x1145B }, { 0x1145D, 0x1145E }, { 0x11660, 0x1166C },
    { 0x116B9, 0x116B9 }, { 0x1182F, 0x11837 }, { 0x11839, 0x1183B },
    { 0x1193B, 0x1193C }, { 0x1193E, 0x1193E }, { 0x11943, 0x11946 },
    { 0x119D4, 0x119D7 }, { 0x119DA, 0x119DB }, { 0x119E0, 0x119E0 },
    { 0x119E2, 0x119E2 }, { 0x11A01, 0x11A0A }, { 0x11A33, 0x11A38 },
    { 0x11A3B, 0x11A47 }, { 0x11A51, 0x11A56 }, { 0x11A59, 0x11A5B },
    { 0x11A8A, 0x11A96 }, { 0x11A98, 0x11A9C }, { 0x11A9E, 0x11AA2 },
    { 0x11B00, 0x11B09 }, { 0x11C30, 0x11C36 }, { 0x11C38, 0x11C3D },
    { 0x11C3F, 0x11C3F }, { 0x11C41, 0x11C45 }, { 0x11C70, 0x11C71 },
    { 0x11C92, 0x11CA7 }, { 0x11CAA, 0x11CB0 }, { 0x11CB2, 0x11CB3 },
    { 0x11CB5, 0x11CB6 }, { 0x11D31, 0x11D36 }, { 0x11D3A, 0x11D3A },
    { 0x11D3C, 0x11D3D }, { 0x11D3F, 0x11D45 }, { 0x11D47, 0x11D47 },
    { 0x11D90, 0x11D91 }, { 0x11D95, 0x11D95 }, { 0x11D97, 0x11D97 },
    { 0x11EF3, 0x11EF4 }, { 0x11EF7, 0x11EF8 }, { 0x11F00, 0x11F01 },
    { 0x11F36, 0x11F3A }, { 0x11F40, 0x11F40 }, { 0x11F42, 0x11F4F },
    { 0x11FFF, 0x11FFF }, { 0x12FF1, 0x12FF2 }, { 0x13430, 0x13440 },
    { 0x13447, 0x13455 }, { 0x16E97, 0x16E9A }, { 0x16F4F, 0x16F4F },
    { 0x16FE2, 0x16FE2 }, { 0x16FE4, 0x16FE4 }, { 0x1CF00, 0x1CF2D },
    { 0x1CF30, 0x1CF46 }, { 0x1E000, 0x1E006 }, { 0x1E008, 0x1E018 },
    { 0x1E01B, 0x1E021 }, { 0x1E023, 0x1E024 }, { 0x1E026, 0x1E02A },
    { 0x1E08F, 0x1E08F }, { 0x1E130, 0x1E136 }, { 0x1E2AE, 0x1E2AE },
    { 0x1E2EC, 0x1E2EF }, { 0x1E4EC, 0x1E4EF }, { 0x1E944, 0x1E94A },
    { 0x1E95E, 0x1E95F },
};

/* Marks of any kind that are newer; for these the library's tables are somewhat
 * more recent. */
static const range newer_marks[] = {
    { 0x7FD, 0x7FD },     { 0x898, 0x89F },     { 0x8CA, 0x8D3 },
    { 0x9FE, 0x9FE },     { 0xAFA, 0xAFF },     { 0xB55, 0xB55 },
    { 0xC04, 0xC04 },     { 0xC3C, 0xC3C },     { 0xCF3, 0xCF3 },
    { 0xD00, 0xD00 },     { 0xD3B, 0xD3C },     { 0xD81, 0xD81 },
    { 0xEBA, 0xEBA },     { 0xECE, 0xECE },     { 0x1715, 0x1715 },
    { 0x180F, 0x180F },   { 0x1ABF, 0x1ACE },   { 0x1CF7, 0x1CF7 },
    { 0x1DF6, 0x1DFA },   { 0xA82C, 0xA82C },   { 0xA8FF, 0xA8FF },
    { 0x10D24, 0x10D27 }, { 0x10EAB, 0x10EAC }, { 0x10EFD, 0x10EFF },
    { 0x10F46, 0x10F50 }, { 0x10F82, 0x10F85 }, { 0x11070, 0x11070 },
    { 0x11073, 0x11074 }, { 0x110C2, 0x110C2 }, { 0x11145, 0x11146 },
    { 0x111C9, 0x111C9 }, { 0x111CE, 0x111CF }, { 0x11241, 0x11241 },
    { 0x1133B, 0x1133B }, { 0x1145E, 0x1145E }, { 0x1182C, 0x1183A },
    { 0x11930, 0x11935 }, { 0x11937, 0x11938 }, { 0x1193B, 0x1193E },
    { 0x11940, 0x11940 }, { 0x11942, 0x11943 }, { 0x119D1, 0x119D7 },
    { 0x119DA, 0x119E0 }, { 0x119E4, 0x119E4 }, { 0x11A01, 0x11A0A },
    { 0x11A33, 0x11A39 }, { 0x11A3B, 0x11A3E }, { 0x11A47, 0x11A47 },
    { 0x11A51, 0x11A5B }, { 0x11A8A, 0x11A99 }, { 0x11D31, 0x11D36 },
    { 0x11D3A, 0x11D3A }, { 0x11D3C, 0x11D3D }, { 0x11D3F, 0x11D45 },
    { 0x11D47, 0x11D47 }, { 0x11D8A, 0x11D8E }, { 0x11D90, 0x11D91 },
    { 0x11D93, 0x11D97 }, { 0x11EF3, 0x11EF6 }, { 0x11F00, 0x11F01 },
    { 0x11F03, 0x11F03 }, { 0x11F34, 0x11F3A }, { 0x11F3E, 0x11F42 },
    { 0x13440, 0x13440 }, { 0x13447, 0x13455 }, { 0x16F4F, 0x16F4F },
    { 0x16F7F, 0x16F87 }, { 0x16FE4, 0x16FE4 }, { 0x16FF0, 0x16FF1 },
    { 0x1CF00, 0x1CF2D }, { 0x1CF30, 0x1CF46 }, { 0x1E08F, 0x1E08F },
    { 0x1E130, 0x1E136 }, { 0x1E2AE, 0x1E2AE }, { 0x1E2EC, 0x1E2EF },
    { 0x1E4EC, 0x1E4EF },
};

static bool in_ranges(const range *list, size_t count, uint32_t code)
{
    size_t lo = 0, hi = count;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (code > list[middle].last)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < count && code >= list[lo].first;
}

static bool is_newer(uint32_t code)
{
    return in_ranges(newer, BT_LEN(newer), code);
}

static bool is_newer_mark(uint32_t code)
{
    return in_ranges(newer_marks, BT_LEN(newer_marks), code);
}

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool bt_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r');
    return code == 0x85 || code == 0xA0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

/* As ispunct() in the C locale. */
static bool ascii_punctuation(uint32_t code)
{
    return code > ' ' && code < 0x7F && !(code >= '0' && code <= '9') &&
           !((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
}

bool bt_is_bert_punctuation(uint32_t code)
{
    return code < 0x80 ? ascii_punctuation(code) : bt_is_punctuation(code);
}

bool bt_is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return ascii_punctuation(code) && !strchr("$+<=>^`|~", (int)code);
    if (code == 0x166D || code == 0x111C9) // until Unicode 12, and 8
        return true;
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO &&
           !is_newer(code);
}

bool bt_is_control(uint32_t code)
{
    if (code < 0x80)
        return code < ' ' || code == 0x7F;
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_CC && !is_newer(code);
}

bool bt_is_nonspacing_mark(uint32_t code)
{
    if (code < 0x300)
        return false;
    if (category(code) != UTF8PROC_CATEGORY_MN)
        return code == 0x1734; // until Unicode 13
    return !is_newer(code);
}

/* Categories Mn, Mc and Me of utf8proc. */
static bool is_current_mark(uint32_t code)
{
    utf8proc_category_t c =
        code < 0x300 ? UTF8PROC_CATEGORY_CN : category(code);
    return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool bt_is_combining_mark(uint32_t code)
{
    if (is_current_mark(code))
        return !is_newer_mark(code);
    return code == 0x1CF2 || code == 0x1CF3; // until Unicode 11
}

bool bt_is_number(uint32_t code)
{
    if (code < 0x80)
        return code >= '0' && code <= '9';
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool bt_is_letter(uint32_t code)
{
    if (code < 0x80)
        return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
    utf8proc_category_t c = category(code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool bt_is_word_character(uint32_t code)
{
    if (code < 0x80)
        return bt_is_letter(code) || bt_is_number(code) || code == '_';
    switch (category(code)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    case UTF8PROC_CATEGORY_SO: // letters in circles and squares
        return (code >= 0x24B6 && code <= 0x24E9) ||
               (code >= 0x1F130 && code <= 0x1F149) ||
               (code >= 0x1F150 && code <= 0x1F169) ||
               (code >= 0x1F170 && code <= 0x1F189);
    default:
        return bt_is_letter(code) || is_current_mark(code) || code == 0x200C ||
               code == 0x200D;
    }
}

bool bt_is_cjk_ideograph(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        { 0x3400, 0x4DBF },   { 0x4E00, 0x9FFF },   { 0xF900, 0xFAFF },
        { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B73F }, { 0x2B740, 0x2B81F },
        { 0x2B920, 0x2CEAF }, { 0x2F800, 0x2FA1F },
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (code <= ranges[i][1])
            return code >= ranges[i][0];
    return false;
}

size_t bt_unicode_lower(uint32_t out[3], uint32_t code)
{
    if (code < 0x80)
        out[0] = code >= 'A' && code <= 'Z' ? code + 0x20 : code;
    else
        out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    if (code != 0x130)
        return 1;
    out[0] = 'i'; // the only one with two characters: the dot stays
    out[1] = 0x307;
    return 2;
}
