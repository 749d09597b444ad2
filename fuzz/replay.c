/* SPDX-License-Identifier: Apache-2.0 */
/* replay.c - run a fuzz target once on every file of a folder. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* The bytes are in a block of their exact size, so that a sanitizer detects
 * overreads. */
static int replay(const char *path)
{
    uint8_t *bytes = NULL;
    long size = -1;
    FILE *file = fopen(path, "rb");
    if (file && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size >= 0 && fseek(file, 0, SEEK_SET) == 0)
        bytes = malloc(size ? (size_t)size : 1);
    int fine = bytes && fread(bytes, 1, (size_t)size, file) == (size_t)size;
    if (fine)
        LLVMFuzzerTestOneInput(bytes, (size_t)size);
    else
        fprintf(stderr, "%s: cannot be read\n", path);
    free(bytes);
    if (file)
        fclose(file);
    return fine ? 0 : -1;
}

int main(int argc, char **argv)
{
    const char *folder = argc == 2 ? argv[1] : ".";
    char path[4096];
    int count = 0;
    DIR *entries = opendir(folder);
    if (!entries) {
        fprintf(stderr, "%s: cannot be opened\n", folder);
        return 1;
    }
    for (struct dirent *e; (e = readdir(entries));) {
        if (e->d_name[0] == '.')
            continue;
        int length = snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        printf("%s\n", path);
        fflush(stdout); // so that the last one named is the one that failed
        if (length >= (int)sizeof(path) || replay(path) != 0)
            return 1;
        count++;
    }
    closedir(entries);
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
