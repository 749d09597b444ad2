/* SPDX-License-Identifier: Apache-2.0 */
/* sentencepiece_proto.c - reading SentencePiece's model files.
 *
 * Protobuf's wire format: a message is a sequence of fields, each a varint tag
 * (number * 8 + wire type) and a value. Nested messages have a length prefix
 * and are at most two deep here. The last occurrence of a field counts. */
#include "formats/sentencepiece_proto.h"

#include "base/array.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

typedef enum wire {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5
} wire;

typedef struct proto_reader {
    bt_sentencepiece *model;
    const unsigned char *bytes; /* the whole file */
    const char *path;
    bauta_error *err;
    size_t at, end; /* what is left of the message */
} proto_reader;

typedef struct field {
    uint64_t number;
    wire type;
    uint64_t value; /* of a varint, or the bits of a fixed one */
    bt_byte_view span;
    size_t at; /* where its tag is */
} field;

#define FAIL(r, at, format, ...)                                 \
    bt_fail((r)->err, BAUTA_ERR_FORMAT, "%s: byte %zu: " format, \
            bt_path_tail((r)->path), (size_t)(at), ##__VA_ARGS__)

/* ---- The wire ------------------------------------------------------------ */

static bauta_status varint_read(proto_reader *r, uint64_t *out)
{
    uint64_t value = 0;
    size_t start = r->at;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end)
            return FAIL(r, start, "a number is cut off");
        uint64_t byte = r->bytes[r->at++];
        if (shift == 63 && byte > 1)
            break;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *out = value;
            return BAUTA_OK;
        }
    }
    return FAIL(r, start, "a number has more than 64 bits");
}

static bauta_status fixed_read(proto_reader *r, field *f, unsigned size)
{
    if (r->end - r->at < size)
        return FAIL(r, f->at, "a field of %u bytes has only %zu", size,
                    r->end - r->at);
    f->value = 0;
    for (unsigned i = 0; i < size; i++)
        f->value |= (uint64_t)r->bytes[r->at++] << (8 * i);
    return BAUTA_OK;
}

static bauta_status span_read(proto_reader *r, field *f)
{
    uint64_t size = 0;
    bauta_status status = varint_read(r, &size);
    if (status)
        return status;
    if (size > r->end - r->at)
        return FAIL(r, f->at, "a field of %llu bytes has only %zu",
                    (unsigned long long)size, r->end - r->at);
    f->span.bytes = (const char *)r->bytes + r->at;
    f->span.size = (size_t)size;
    r->at += (size_t)size;
    return BAUTA_OK;
}

/* Read the next field of the message, which has at least one byte left. */
static bauta_status field_read(proto_reader *r, field *f)
{
    uint64_t tag = 0;
    *f = (field){ .at = r->at };
    bauta_status status = varint_read(r, &tag);
    if (status)
        return status;
    f->number = tag >> 3;
    f->type = (wire)(tag & 7);
    if (f->number == 0 || f->number >= 1u << 29)
        return FAIL(r, f->at, "is not a protobuf field");
    switch (f->type) {
    case WIRE_VARINT:
        return varint_read(r, &f->value);
    case WIRE_64:
        return fixed_read(r, f, 8);
    case WIRE_BYTES:
        return span_read(r, f);
    case WIRE_32:
        return fixed_read(r, f, 4);
    }
    return FAIL(r, f->at, "a field has the unknown wire type %u",
                (unsigned)f->type);
}

static bauta_status need(proto_reader *r, const field *f, wire type,
                         const char *name)
{
    if (f->type == type)
        return BAUTA_OK;
    return FAIL(r, f->at, "%s has the wire type %u and not %u", name,
                (unsigned)f->type, (unsigned)type);
}

static bauta_status flag_read(proto_reader *r, const field *f, bool *out,
                              const char *name)
{
    bauta_status status = need(r, f, WIRE_VARINT, name);
    if (!status)
        *out = f->value != 0;
    return status;
}

static bauta_status text_read(proto_reader *r, const field *f,
                              bt_byte_view *out, const char *name)
{
    bauta_status status = need(r, f, WIRE_BYTES, name);
    if (!status)
        *out = f->span;
    return status;
}

/* A string that must be UTF-8. */
static bauta_status utf8_read(proto_reader *r, const field *f,
                              bt_byte_view *out, const char *name)
{
    bauta_status status = text_read(r, f, out, name);
    if (!status && bt_utf8_valid_prefix(out->bytes, out->size) != out->size)
        status = FAIL(r, f->at, "%s is not UTF-8", name);
    return status;
}

/* Handles a field of a message; `of` is the struct that is filled. */
typedef bauta_status field_fn(proto_reader *r, const field *f, void *of);

static bauta_status message_read(proto_reader *r, const field *f,
                                 const char *name, field_fn *read, void *of)
{
    bauta_status status = need(r, f, WIRE_BYTES, name);
    if (status)
        return status;
    proto_reader inner = *r;
    inner.at = (size_t)(f->span.bytes - (const char *)r->bytes);
    inner.end = inner.at + f->span.size;
    while (!status && inner.at < inner.end) {
        field next;
        status = field_read(&inner, &next);
        if (!status)
            status = read(&inner, &next, of);
    }
    return status;
}

/* ---- Pieces -------------------------------------------------------------- */

static bauta_status score_read(proto_reader *r, const field *f, float *out)
{
    bauta_status status = need(r, f, WIRE_32, "a score");
    uint32_t bits = (uint32_t)f->value;
    if (status)
        return status;
    memcpy(out, &bits, sizeof(bits));
    if (!isfinite(*out))
        return FAIL(r, f->at, "a score is not finite");
    return BAUTA_OK;
}

static bauta_status type_read(proto_reader *r, const field *f,
                              bt_piece_type *out)
{
    bauta_status status = need(r, f, WIRE_VARINT, "a type");
    if (status)
        return status;
    if (f->value < BT_PIECE_NORMAL || f->value > BT_PIECE_BYTE)
        return FAIL(r, f->at, "a piece has the unknown type %llu",
                    (unsigned long long)f->value);
    *out = (bt_piece_type)f->value;
    return BAUTA_OK;
}

static bauta_status piece_field(proto_reader *r, const field *f, void *of)
{
    bt_piece *piece = of;
    switch (f->number) {
    case 1:
        return text_read(r, f, &piece->text, "a piece");
    case 2:
        return score_read(r, f, &piece->score);
    case 3:
        return type_read(r, f, &piece->type);
    default:
        return BAUTA_OK;
    }
}

static bauta_status piece_check(proto_reader *r, size_t at,
                                const bt_piece *piece)
{
    const bt_byte_view *text = &piece->text;
    size_t id = r->model->count;
    if (text->size == 0)
        return FAIL(r, at, "piece %zu is empty", id);
    if (text->size > BT_PIECE_BYTES_MAX)
        return FAIL(r, at, "piece %zu has %zu bytes; at most %d are allowed",
                    id, text->size, BT_PIECE_BYTES_MAX);
    if (bt_utf8_valid_prefix(text->bytes, text->size) != text->size)
        return FAIL(r, at, "piece %zu is not UTF-8", id);
    if (memchr(text->bytes, 0, text->size))
        return FAIL(r, at, "piece %zu has a NUL", id);
    return BAUTA_OK;
}

static bauta_status piece_read(proto_reader *r, const field *f)
{
    bt_sentencepiece *model = r->model;
    bt_piece piece = { .type = BT_PIECE_NORMAL };
    bauta_status status = message_read(r, f, "a piece", piece_field, &piece);
    if (!status)
        status = piece_check(r, f->at, &piece);
    if (status)
        return status;
    if (model->count == BT_PIECES_MAX)
        return FAIL(r, f->at, "has more than %d pieces", BT_PIECES_MAX);
    if (BT_ARRAY_RESERVE(model->pieces, model->capacity, model->count, 1))
        return bt_fail_memory(r->err, "pieces", sizeof(bt_piece));
    model->pieces[model->count++] = piece;
    return BAUTA_OK;
}

/* ---- Specifications ------------------------------------------------------ */

static bauta_status model_read(proto_reader *r, const field *f,
                               bt_piece_model *out)
{
    bauta_status status = need(r, f, WIRE_VARINT, "model_type");
    if (status)
        return status;
    if (f->value < BT_PIECE_MODEL_UNIGRAM || f->value > BT_PIECE_MODEL_CHAR)
        return FAIL(r, f->at, "has the unknown model_type %llu",
                    (unsigned long long)f->value);
    *out = (bt_piece_model)f->value;
    return BAUTA_OK;
}

static bauta_status trainer_field(proto_reader *r, const field *f, void *of)
{
    bt_sentencepiece *model = of;
    switch (f->number) {
    case 3:
        return model_read(r, f, &model->model);
    case 24:
        return flag_read(r, f, &model->whitespace_suffix,
                         "treat_whitespace_as_suffix");
    case 26:
        return flag_read(r, f, &model->whitespace_only_pieces,
                         "allow_whitespace_only_pieces");
    case 35:
        return flag_read(r, f, &model->byte_fallback, "byte_fallback");
    case 44:
        return utf8_read(r, f, &model->unk_surface, "unk_surface");
    case 45:
        return text_read(r, f, &model->unk_piece, "unk_piece");
    case 46:
        return text_read(r, f, &model->bos_piece, "bos_piece");
    case 47:
        return text_read(r, f, &model->eos_piece, "eos_piece");
    case 48:
        return text_read(r, f, &model->pad_piece, "pad_piece");
    default:
        return BAUTA_OK;
    }
}

static bauta_status normalizer_field(proto_reader *r, const field *f, void *of)
{
    bt_sentencepiece *model = of;
    switch (f->number) {
    case 2:
        return text_read(r, f, &model->charsmap, "precompiled_charsmap");
    case 3:
        return flag_read(r, f, &model->add_dummy_prefix, "add_dummy_prefix");
    case 4:
        return flag_read(r, f, &model->remove_extra_whitespaces,
                         "remove_extra_whitespaces");
    case 5:
        return flag_read(r, f, &model->escape_whitespaces,
                         "escape_whitespaces");
    default:
        return BAUTA_OK;
    }
}

static bauta_status denormalizer_field(proto_reader *r, const field *f,
                                       void *of)
{
    bt_sentencepiece *model = of;
    if (f->number != 2)
        return BAUTA_OK;
    return text_read(r, f, &model->denormalizer_charsmap,
                     "precompiled_charsmap");
}

static bauta_status model_field(proto_reader *r, const field *f)
{
    bt_sentencepiece *model = r->model;
    switch (f->number) {
    case 1:
        return piece_read(r, f);
    case 2:
        return message_read(r, f, "trainer_spec", trainer_field, model);
    case 3:
        return message_read(r, f, "normalizer_spec", normalizer_field, model);
    case 5:
        return message_read(r, f, "denormalizer_spec", denormalizer_field,
                            model);
    default:
        return BAUTA_OK;
    }
}

/* ---- All pieces ---------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

int bt_piece_byte(const char *piece, size_t size)
{
    if (size != 6 || memcmp(piece, "<0x", 3) != 0 || piece[5] != '>')
        return -1;
    int high = hex_digit(piece[3]), low = hex_digit(piece[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* An error about a piece: "file: piece 7 ...". */
#define FAIL_PIECE(r, id, format, ...)                           \
    bt_fail((r)->err, BAUTA_ERR_FORMAT, "%s: piece %zu " format, \
            bt_path_tail((r)->path), (size_t)(id), ##__VA_ARGS__)

static bauta_status unknown_check(proto_reader *r)
{
    bt_sentencepiece *model = r->model;
    model->unknown = UINT32_MAX;
    for (size_t i = 0; i < model->count; i++) {
        if (model->pieces[i].type != BT_PIECE_UNKNOWN)
            continue;
        if (model->unknown != UINT32_MAX)
            return FAIL_PIECE(r, i, "is a second unknown piece beside %u",
                              model->unknown);
        model->unknown = (uint32_t)i;
    }
    if (model->unknown == UINT32_MAX)
        return bt_fail(r->err, BAUTA_ERR_FORMAT,
                       "%s: none of its %zu pieces is the unknown one",
                       bt_path_tail(r->path), model->count);
    return BAUTA_OK;
}

static bauta_status bytes_check(proto_reader *r)
{
    const bt_sentencepiece *model = r->model;
    bool found[256] = { false };
    for (size_t i = 0; i < model->count; i++) {
        const bt_piece *piece = model->pieces + i;
        if (piece->type != BT_PIECE_BYTE)
            continue;
        int byte = bt_piece_byte(piece->text.bytes, piece->text.size);
        if (byte < 0)
            return FAIL_PIECE(r, i, "has the type BYTE but is not <0x..>");
        if (!model->byte_fallback)
            return FAIL_PIECE(r, i, "has the type BYTE without byte_fallback");
        found[byte] = true;
    }
    for (int byte = 0; model->byte_fallback && byte < 256; byte++)
        if (!found[byte])
            return bt_fail(r->err, BAUTA_ERR_FORMAT,
                           "%s: has byte_fallback but no piece <0x%02X>",
                           bt_path_tail(r->path), (unsigned)byte);
    return BAUTA_OK;
}

bauta_status bt_sentencepiece_parse(bt_sentencepiece *model, const void *bytes,
                                    size_t size, const char *path,
                                    bauta_error *err)
{
    proto_reader r = { model, bytes, path, err, 0, size };
    bauta_status status = BAUTA_OK;
    *model = (bt_sentencepiece){ .model = BT_PIECE_MODEL_UNIGRAM,
                                 .add_dummy_prefix = true,
                                 .remove_extra_whitespaces = true,
                                 .escape_whitespaces = true };
    while (!status && r.at < r.end) {
        field f;
        status = field_read(&r, &f);
        if (!status)
            status = model_field(&r, &f);
    }
    if (!status)
        status = unknown_check(&r);
    return status ? status : bytes_check(&r);
}

void bt_sentencepiece_release(bt_sentencepiece *model)
{
    bt_free(model->pieces);
    *model = (bt_sentencepiece){ 0 };
}
