/* SPDX-License-Identifier: Apache-2.0 */
/* file_kind.c - see file_kind.h. */
#include "formats/file_kind.h"

#include "base/error.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------- */

enum { HEAD = 512, TAR_MAGIC = 257 };

#define PICKLED                                                      \
    "is a pickled PyTorch file, which is not read: convert it with " \
    "transformers, from_pretrained(dir).save_pretrained(dir2)"
#define UNPACK ": unpack it first"

typedef struct file_signature {
    const char *bytes;
    size_t size, at;
    const char *text;
} file_signature;

#define KIND(bytes, at, text)              \
    {                                      \
        bytes, sizeof(bytes) - 1, at, text \
    }

static const file_signature kinds[] = {
    KIND("GGUF", 0,
         "is a GGUF file, which is for llama.cpp: get the original model, a "
         "folder with config.json and model.safetensors"),
    KIND("version https://git-lfs.github.com/spec/", 0,
         "is a Git LFS pointer and not the file itself: run 'git lfs pull' "
         "where it was cloned"),
    KIND("\x1f\x8b", 0, "is compressed with gzip" UNPACK),
    KIND("BZh", 0, "is compressed with bzip2" UNPACK),
    KIND("\xfd"
         "7zXZ",
         0, "is compressed with xz" UNPACK),
    KIND("\x28\xb5\x2f\xfd", 0, "is compressed with zstd" UNPACK),
    KIND("7z\xbc\xaf\x27\x1c", 0, "is a 7z archive" UNPACK),
    KIND("ustar", TAR_MAGIC, "is a tar archive" UNPACK),
    KIND("\x80\x02", 0, PICKLED),
    KIND("\x80\x03", 0, PICKLED),
    KIND("\x80\x04", 0, PICKLED),
    KIND("\x80\x05", 0, PICKLED),
    KIND("\x89HDF\r\n\x1a\n", 0,
         "is an HDF5 file, as Keras writes it: get model.safetensors"),
    KIND("<!DOCTYPE", 0, "is a web page and not the file: download it again"),
    KIND("<!doctype", 0, "is a web page and not the file: download it again"),
    KIND("<html", 0, "is a web page and not the file: download it again"),
};

static bool holds(const unsigned char *bytes, size_t size, const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= size; i++)
        if (memcmp(bytes + i, word, length) == 0)
            return true;
    return false;
}

/* ONNX has no magic number: protobuf field 1 is the version of the format, and
 * field 2 (or 3, if there is no producer) is a string. */
static bool is_onnx(const unsigned char *bytes, size_t size)
{
    return size >= 8 && bytes[0] == 0x08 && bytes[1] >= 3 && bytes[1] < 32 &&
           (bytes[2] == 0x12 || bytes[2] == 0x1A);
}

/* Eight bytes of header length, then the JSON header. */
static bool is_safetensors(const unsigned char *bytes, size_t size)
{
    return size >= 9 && bytes[8] == '{' && !memcmp(bytes + 4, "\0\0\0\0", 4);
}

const char *bt_file_kind_text(const void *start, size_t size)
{
    const unsigned char *bytes = start;
    for (size_t i = 0; i < BT_LEN(kinds); i++)
        if (size >= kinds[i].at + kinds[i].size &&
            memcmp(bytes + kinds[i].at, kinds[i].bytes, kinds[i].size) == 0)
            return kinds[i].text;
    if (size >= 4 && memcmp(bytes, "PK\3\4", 4) == 0)
        return holds(bytes, size, "data.pkl") ? PICKLED
                                              : "is a zip archive" UNPACK;
    return is_onnx(bytes, size)
               ? "is an ONNX file: get model.safetensors and config.json"
               : NULL;
}

/* Read the first bytes of a regular file; returns their number. */
static size_t head_read(unsigned char to[HEAD], const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = 0;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        got = read(fd, to, HEAD);
    if (fd >= 0)
        close(fd);
    return got > 0 ? (size_t)got : 0;
}

bauta_status bt_file_kind_explain(bauta_status status, const char *path,
                                  bauta_error *err)
{
    unsigned char head[HEAD];
    if (!status || status == BAUTA_ERR_NOMEM)
        return status;
    const char *text = bt_file_kind_text(head, head_read(head, path));
    return text ? bt_fail(err, status, "%s: %s", bt_path_tail(path), text)
                : status;
}

/* ---- folders ----------------------------------------------------------- */

/* The error for a file that was given instead of a folder. */
static bauta_status fail_not_folder(const char *path, bauta_error *err)
{
    unsigned char head[HEAD];
    size_t size = head_read(head, path);
    const char *text = bt_file_kind_text(head, size);
    if (!text && is_safetensors(head, size))
        text = "is a file of weights: give the folder that it is in, beside "
               "its config.json";
    return bt_fail(err, BAUTA_ERR_FORMAT, "%s: %s", bt_path_tail(path),
                   text ? text : "is a file, not a model folder");
}

enum { SHOWN = 3 };

/* The first names of a folder in alphabetical order, GGUF files first. */
typedef struct names {
    bt_quoted at[SHOWN];
    size_t count; /* of all files */
    bool gguf;    /* there are GGUF files */
} names;

static bool comes_before(const char *a, const char *b)
{
    bool x = bt_ends_with(a, ".gguf"), y = bt_ends_with(b, ".gguf");
    return x != y ? x : strcmp(a, b) < 0;
}

static void name_add(names *n, const char *name)
{
    bt_quoted quoted = bt_quote(name);
    size_t held = n->count < SHOWN ? n->count : SHOWN, i = held;
    n->count++;
    n->gguf |= bt_ends_with(name, ".gguf");
    for (; i > 0 && comes_before(quoted.text, n->at[i - 1].text); i--)
        if (i < SHOWN)
            n->at[i] = n->at[i - 1];
    if (i < SHOWN)
        n->at[i] = quoted;
}

/* List a folder; on failure returns false and sets errno. */
static bool names_list(names *n, const char *path)
{
    DIR *entries = opendir(path);
    *n = (names){ 0 };
    if (!entries)
        return false;
    for (struct dirent *e; (e = readdir(entries));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            name_add(n, e->d_name);
    closedir(entries);
    return true;
}

bt_name_list bt_file_kind_list_folder(const char *path)
{
    names n;
    bt_name_list out = { "nothing else" };
    char more[32] = "";
    if (!names_list(&n, path) || n.count == 0)
        return out;
    if (n.count > SHOWN)
        snprintf(more, sizeof(more), " and %zu more", n.count - SHOWN);
    snprintf(out.text, sizeof(out.text), "%s%s%s%s%s%s%s", n.at[0].text,
             n.count > 1 ? ", " : "", n.at[1].text, n.count > 2 ? ", " : "",
             n.at[2].text, more, n.gguf ? "; GGUF is for llama.cpp" : "");
    return out;
}

bauta_status bt_file_kind_explain_folder(const char *path, bauta_error *err)
{
    names n;
    bool listed = names_list(&n, path);
    if (!listed && errno == ENOTDIR)
        return fail_not_folder(path, err);
    if (!listed && errno == ENOENT)
        return bt_fail(err, BAUTA_ERR_IO, "%s: there is no such folder",
                       bt_path_tail(path));
    if (!listed)
        return bt_fail(err, BAUTA_ERR_IO, "%s: cannot list it: %s",
                       bt_path_tail(path), strerror(errno));
    if (n.count == 0)
        return bt_fail(err, BAUTA_ERR_IO, "%s: is an empty folder",
                       bt_path_tail(path));
    return bt_fail(err, BAUTA_ERR_IO,
                   "%s: is not a model folder: it has no config.json, but %s",
                   bt_path_tail(path), bt_file_kind_list_folder(path).text);
}
