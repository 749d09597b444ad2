/* SPDX-License-Identifier: Apache-2.0 */
/* bench_load.c - loading GPT-2 124M, 475 MiB of float32, from a folder that the
 * bench writes: its time, and the memory it takes.
 *
 *   bench_load [FOLDER]     where to write, $TMPDIR or /tmp by default
 *
 * A read-only model leaves its weights in the mapped file, so that loading only
 * reads the header; a trainable one copies them and has gradients. */
#include "bauta.h"
#include "bench.h"
#include "formats/safetensors.h"
#include "model/families/family.h"

#include <unistd.h>

enum { MOST = 256, NAME = 96 };

typedef struct list {
    bt_stored_tensor tensors[MOST];
    char names[MOST][NAME];
    size_t count, floats;
} list;

static void collect(void *user, const char *name, bt_tensor *tensor, int rank)
{
    list *l = user;
    bt_stored_tensor *stored = &l->tensors[l->count];
    snprintf(l->names[l->count], NAME, "%s", name);
    *stored = (bt_stored_tensor){ .name = l->names[l->count],
                                  .dtype = BAUTA_FLOAT32,
                                  .rank = (unsigned)rank,
                                  .bytes = tensor->rows * tensor->columns * 4 };
    stored->shape[0] = rank == 1 ? tensor->columns : tensor->rows;
    stored->shape[1] = rank == 1 ? 0 : tensor->columns;
    l->floats += tensor->rows * tensor->columns;
    l->count++;
}

static void must(bauta_status status, const bauta_error *err)
{
    if (status) {
        fprintf(stderr, "%s\n", err->message);
        exit(1);
    }
}

static const char config[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"],\n"
    " \"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024,"
    "\n \"vocab_size\": 50257, \"tie_word_embeddings\": true}\n";

static void folder_write(const char *folder)
{
    char path[4200];
    bauta_error err;
    static list l;
    const bt_model_config model_config = {
        .stacks = BT_DECODER_ONLY,
        .decoder = { .layers = 12,
                     .heads = 12,
                     .kv_heads = 12,
                     .ffn_dim = 3072 },
        .vocab_size = 50257,
        .width = 768,
        .head_dim = 64,
        .final_norm = true,
        .max_positions = 1024,
        .qkv_bias = true,
        .out_bias = true,
        .ffn_bias = true,
        .fused_qkv = true,
        .transposed = true,
        .tied = true,
    };
    bt_model *model;
    must(bt_model_create(&model, &model_config, &err), &err);
    bt_family_gpt2.visit_tensors(model, &(bt_tensor_visitor){ collect, &l });
    float *data = bench_floats(l.floats), *at = data;
    for (size_t i = 0; i < l.count; i++) {
        l.tensors[i].data = at;
        at += l.tensors[i].bytes / sizeof(float);
    }
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    must(bt_safetensors_write(path, l.tensors, l.count, NULL, 0, &err), &err);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    if (!file || fputs(config, file) < 0 || fclose(file)) {
        fprintf(stderr, "%s cannot be written\n", path);
        exit(1);
    }
    free(data);
    bt_model_free(model);
}

/* MiB of private memory of this process, without mapped files. */
static double own_memory(void)
{
    double mib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "RssAnon:", 8) == 0)
            mib = atof(line + 8) / 1024;
    if (file)
        fclose(file);
    return mib;
}

static void load(const char *folder, bool trainable)
{
    bauta_error err;
    bauta_model *model;
    double before = own_memory(), start = bench_now();
    must(bauta_model_load(&model, folder, trainable, &err), &err);
    double seconds = bench_now() - start, after = own_memory();
    printf("%s: %.2f ms, %.1f MiB of its own for %.1f MiB of weights\n",
           trainable ? "trainable" : "read-only", seconds * 1e3, after - before,
           (double)bauta_model_parameter_count(model) * 4 / 1048576);
    bauta_model_free(model);
}

int main(int argc, char **argv)
{
    char folder[4096], path[4200];
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/bauta-bench-XXXXXX",
             argc > 1 ? argv[1]
             : base   ? base
                      : "/tmp");
    if (!mkdtemp(folder)) {
        fprintf(stderr, "%s cannot be made\n", folder);
        return 1;
    }
    folder_write(folder);
    load(folder, false);
    load(folder, false);
    load(folder, true);
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    unlink(path);
    snprintf(path, sizeof(path), "%s/config.json", folder);
    unlink(path);
    rmdir(folder);
    return 0;
}
