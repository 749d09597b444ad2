/* SPDX-License-Identifier: Apache-2.0 */
/* test_comm.c - collective operations of ranks: the order of additions, the
 * bytes that are sent, and ranks that fail. */
#include "rank_device.h"
#include "rank_threads.h"
#include "reference_backend.h"

#include "base/error.h"
#include "bauta.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* All are connected before one can fail. */
static bool comm_open(rank_thread *self, bt_comm *comm)
{
    bauta_error err = { 0 };
    bauta_status status =
        bt_comm_sockets(comm, self->rank, self->count, self->sockets, &err);
    if (status)
        print_error("%s\n", err.message);
    RANK_CHECK(self, status == BAUTA_OK);
    pthread_barrier_wait(self->all);
    return status == BAUTA_OK;
}

/* ---- sums ---------------------------------------------------------------- */

enum { ELEMENTS_MAX = 600000 };

typedef struct sum_case {
    size_t count;
    size_t bounds[RANK_THREADS_MAX + 1];
    float *values[RANK_THREADS_MAX]; /* of each rank; changed by the ranks */
    float *want;
    bool direct; /* between devices: without a copy in host memory */
} sum_case;

/* Slices of any size, empty ones among them. */
static void bounds_draw(test_random *r, sum_case *c, int ranks)
{
    c->bounds[0] = 0;
    for (int i = 1; i < ranks; i++)
        c->bounds[i] = test_below(r, 4) ? test_below(r, c->count + 1) : 0;
    c->bounds[ranks] = c->count;
    for (int i = 1; i < ranks; i++)
        for (int j = i; j > 1 && c->bounds[j] < c->bounds[j - 1]; j--) {
            size_t x = c->bounds[j];
            c->bounds[j] = c->bounds[j - 1];
            c->bounds[j - 1] = x;
        }
}

/* The tree over ranks, adjacent ones first. */
static float tree_sum(const sum_case *c, int first, int count, size_t i)
{
    if (count == 1)
        return c->values[first][i];
    return tree_sum(c, first, count / 2, i) +
           tree_sum(c, first + count / 2, count / 2, i);
}

static void sum_rank(rank_thread *self)
{
    sum_case *c = self->user;
    bauta_error err = { 0 };
    bt_comm comm;
    if (!comm_open(self, &comm))
        return;
    uint64_t greetings = comm.sent;
    float *mine = c->values[self->rank];
    bt_buffer buffer = bt_buffer_of_host(mine, c->count * sizeof(float));
    bt_tensor t = bt_tensor_of(&buffer, BAUTA_FLOAT32, 1, c->count);
    RANK_CHECK(self, !bt_comm_reduce_scatter(&comm, NULL, &t, c->bounds, &err));
    int own = bt_comm_slice(&comm, self->rank);
    RANK_CHECK(self, memcmp(mine + c->bounds[own], c->want + c->bounds[own],
                            (c->bounds[own + 1] - c->bounds[own]) *
                                sizeof(float)) == 0);
    RANK_CHECK(self, !bt_comm_all_gather(&comm, NULL, &t, c->bounds, &err));
    RANK_CHECK(self, memcmp(mine, c->want, c->count * sizeof(float)) == 0);
    RANK_CHECK(self,
               comm.sent - greetings == bt_comm_slices_bytes(&comm, c->bounds));
    bt_comm_release(&comm);
}

/* ---- sums on a device ---------------------------------------------------- */

static void device_sum_rank(rank_thread *self)
{
    sum_case *c = self->user;
    size_t bytes = c->count * sizeof(float);
    float *mine = c->values[self->rank];
    bauta_options options = BAUTA_OPTIONS_INIT;
    bauta_error err = { 0 };
    bt_stream *stream = NULL;
    bt_buffer buffer = { 0 };
    bt_comm comm;
    if (!comm_open(self, &comm))
        return;
    RANK_CHECK(self, !bt_reference_driver.open(&stream, 0, &options, &err));
    const bt_backend *b = stream->backend;
    comm.device = c->direct ? &rank_device : NULL;
    comm.device_chosen = c->direct;
    RANK_CHECK(self, !b->alloc(stream, &buffer, bytes, &err));
    RANK_CHECK(self, !b->upload(stream, &buffer, 0, mine, bytes, &err));
    bt_tensor t = bt_tensor_of(&buffer, BAUTA_FLOAT32, 1, c->count);
    uint64_t sent = comm.sent;
    RANK_CHECK(self,
               !bt_comm_reduce_scatter(&comm, stream, &t, c->bounds, &err));
    RANK_CHECK(self, !bt_comm_all_gather(&comm, stream, &t, c->bounds, &err));
    RANK_CHECK(self,
               comm.sent - sent == bt_comm_slices_bytes(&comm, c->bounds));
    RANK_CHECK(self, !b->download(stream, mine, &buffer, 0, bytes, &err));
    RANK_CHECK(self, memcmp(mine, c->want, bytes) == 0);
    RANK_CHECK(self, (comm.device_staging.memory != NULL) ==
                         (c->direct && self->count > 1));
    // Ranks are done when all are, or one would see another one end.
    RANK_CHECK(self, !bt_comm_barrier(&comm, &err));
    b->free(&buffer);
    bt_comm_release(&comm);
    b->stream_free(stream);
}

static void sums_check(int rounds, size_t ranks_bits, size_t most,
                       void (*rank)(rank_thread *))
{
    test_random r = test_random_from(test_seed());
    for (int round = 0; round < rounds; round++) {
        int ranks = 1 << test_below(&r, ranks_bits);
        sum_case c = { .count = test_below(&r, round % 8 ? 1000 : most),
                       .direct = round % 3 != 1 };
        bounds_draw(&r, &c, ranks);
        c.want = calloc(c.count + 1, sizeof(float));
        for (int i = 0; i < ranks; i++) {
            c.values[i] = calloc(c.count + 1, sizeof(float));
            for (size_t j = 0; j < c.count; j++)
                c.values[i][j] =
                    ldexpf(test_float(&r), (int)test_below(&r, 20));
        }
        for (size_t j = 0; j < c.count; j++)
            c.want[j] = tree_sum(&c, 0, ranks, j);
        ranks_run(ranks, rank, &c);
        for (int i = 0; i < ranks; i++)
            free(c.values[i]);
        free(c.want);
    }
}

static void sums_are_a_tree_over_ranks(void **state)
{
    (void)state;
    sums_check(40, 5, ELEMENTS_MAX, sum_rank);
}

static void sums_on_a_device_are_the_same_tree(void **state)
{
    (void)state;
    size_t live = reference_backend_live_buffers();
    sums_check(12, 3, ELEMENTS_MAX, device_sum_rank);
    assert_int_equal(reference_backend_live_buffers(), live);
}

/* With equal slices each rank sends (n - 1) / n of the tensor, twice. */
static void equal_slices_send_the_formula(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks *= 2) {
        bt_comm comm = bt_comm_single();
        size_t bounds[17];
        comm.count = ranks;
        for (int i = 0; i <= ranks; i++)
            bounds[i] = (size_t)i * 1600 / (size_t)ranks;
        for (comm.rank = 0; comm.rank < ranks; comm.rank++)
            assert_int_equal(bt_comm_slices_bytes(&comm, bounds),
                             2 * 4 * (1600 - 1600 / (size_t)ranks));
    }
}

/* Every slice has one owner. */
static void slices_have_owners(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 1024; ranks *= 2) {
        bt_comm comm = bt_comm_single();
        static int owner[1024];
        memset(owner, 0, sizeof(owner));
        comm.count = ranks;
        for (int i = 0; i < ranks; i++)
            owner[bt_comm_slice(&comm, i)]++;
        for (int i = 0; i < ranks; i++)
            assert_int_equal(owner[i], 1);
    }
}

/* ---- host memory --------------------------------------------------------- */

enum { HOST_COUNT = 300000 };

static void host_rank(rank_thread *self)
{
    bauta_error err = { 0 };
    bt_comm comm;
    size_t bounds[RANK_THREADS_MAX + 1];
    double *values = calloc(HOST_COUNT, sizeof(double));
    float *slices = calloc(HOST_COUNT, sizeof(float));
    if (!comm_open(self, &comm))
        goto done;
    for (int i = 0; i <= self->count; i++)
        bounds[i] = (size_t)i * HOST_COUNT / (size_t)self->count;
    for (size_t i = 0; i < HOST_COUNT; i++)
        if (i % (size_t)self->count == (size_t)self->rank)
            values[i] = (double)i;
    RANK_CHECK(self, !bt_comm_sum(&comm, values, HOST_COUNT, &err));
    for (size_t i = 0; i < HOST_COUNT; i++)
        RANK_CHECK(self, values[i] == (double)i);
    int own = bt_comm_slice(&comm, self->rank);
    for (size_t i = bounds[own]; i < bounds[own + 1]; i++)
        slices[i] = (float)i;
    RANK_CHECK(self, !bt_comm_gather(&comm, slices, bounds, &err));
    for (size_t i = 0; self->rank == 0 && i < HOST_COUNT; i++)
        RANK_CHECK(self, slices[i] == (float)i);
    for (size_t i = 0; i < HOST_COUNT; i++)
        slices[i] = self->rank ? -1.0f : (float)i;
    RANK_CHECK(self, !bt_comm_broadcast(&comm, slices,
                                        HOST_COUNT * sizeof(float), &err));
    for (size_t i = 0; i < HOST_COUNT; i++)
        RANK_CHECK(self, slices[i] == (float)i);
    RANK_CHECK(self, !bt_comm_barrier(&comm, &err));
    bt_comm_release(&comm);
done:
    free(values);
    free(slices);
}

static void all_ranks_get_what_they_should(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 16; ranks *= 2)
        ranks_run(ranks, host_rank, NULL);
}

/* ---- failures ------------------------------------------------------------ */

/* Rank 1 fails for a reason, or ends, and the others learn of it: the
 * neighbours by themselves, the rest from them. */
static void failing_rank(rank_thread *self)
{
    const bool *gives_reason = self->user;
    bauta_error err = { 0 };
    bt_comm comm;
    if (!comm_open(self, &comm))
        return;
    if (self->rank == 1) {
        if (*gives_reason)
            comm.transport->abort(&comm, "rank 1: no space left on device");
    } else {
        RANK_CHECK(self, bt_comm_barrier(&comm, &err) == BAUTA_ERR_RANK);
        const char *want = *gives_reason ? "rank 1: no space left on device"
                                         : "ended unexpectedly";
        RANK_CHECK(self, strstr(err.message, want) != NULL);
        RANK_CHECK(self, strstr(err.message, "rank 1") != NULL);
        RANK_CHECK(self, *gives_reason ? comm.lost == -1 : true);
        comm.transport->abort(&comm, err.message);
    }
    bt_comm_release(&comm);
}

static void a_rank_that_fails_is_noticed_by_all(void **state)
{
    (void)state;
    bool gives_reason[] = { true, false };
    for (int ranks = 2; ranks <= 16; ranks *= 2)
        for (int i = 0; i < 2; i++)
            ranks_run(ranks, failing_rank, &gives_reason[i]);
}

/* Several ranks have something to say, and one of them does: rank `lost` is
 * gone, or if that is -1, all fail for a reason of their own. */
typedef struct speakers {
    int lost;
    atomic_int count;
} speakers;

static void speaking_rank(rank_thread *self)
{
    speakers *all = self->user;
    bauta_error err = { 0 };
    bt_comm comm;
    if (!comm_open(self, &comm))
        return;
    if (all->lost >= 0 && self->rank != all->lost)
        RANK_CHECK(self, bt_comm_barrier(&comm, &err) == BAUTA_ERR_RANK);
    if (self->rank != all->lost) {
        if (!bt_comm_reported(&comm))
            atomic_fetch_add(&all->count, 1);
        comm.transport->abort(&comm, comm.reason[0] ? comm.reason : "a reason");
    }
    bt_comm_release(&comm);
}

static void one_rank_speaks(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        for (int lost = -1; lost < ranks; lost++) {
            speakers all = { .lost = lost };
            ranks_run(ranks, speaking_rank, &all);
            if (atomic_load(&all.count) != 1)
                fail_msg("%d of %d ranks speak when rank %d is lost",
                         atomic_load(&all.count), ranks, lost);
        }
}

/* One sends less than the other expects. */
static void unequal_rank(rank_thread *self)
{
    bauta_error err = { 0 };
    bt_comm comm;
    double values[3] = { 1, 2, 3 };
    if (!comm_open(self, &comm))
        return;
    bauta_status status = bt_comm_sum(&comm, values, self->rank ? 2 : 3, &err);
    RANK_CHECK(self, status == BAUTA_ERR_RANK);
    RANK_CHECK(self, strstr(err.message, "do not run the same command") ||
                         strstr(err.message, "ended unexpectedly"));
    bt_comm_release(&comm);
}

static void ranks_that_do_different_things_are_told(void **state)
{
    (void)state;
    ranks_run(2, unequal_rank, NULL);
}

/* ---- the public calls ---------------------------------------------------- */

static void environment_clear(void)
{
    static const char *const names[] = { "RANK",
                                         "WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "PMI_SIZE",
                                         "SLURM_PROCID",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "SLURM_STEP_NUM_TASKS",
                                         "MPI_LOCALNRANKS" };
    for (size_t i = 0; i < BT_LEN(names); i++)
        unsetenv(names[i]);
}

static void the_environment_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *rank, *size, *address, *port, *message;
    } cases[] = {
        { "0", "3", "localhost", NULL, "not a power of two" },
        { "0", "0", "localhost", NULL, "not a power of two" },
        { "4", "4", "localhost", NULL, "RANK is 4, but WORLD_SIZE is 4" },
        { "x", "2", "localhost", NULL, "the variable RANK is \"x\"" },
        { "-1", "2", "localhost", NULL, "the variable RANK is \"-1\"" },
        { "1", "2", NULL, NULL, "MASTER_ADDR does not say" },
        { "1", "2", "localhost", "70000", "MASTER_PORT is 70000" },
    };
    for (size_t i = 0; i < BT_LEN(cases); i++) {
        bauta_ranks *ranks = NULL;
        bauta_error err = { 0 };
        environment_clear();
        setenv("RANK", cases[i].rank, 1);
        setenv("WORLD_SIZE", cases[i].size, 1);
        if (cases[i].address)
            setenv("MASTER_ADDR", cases[i].address, 1);
        if (cases[i].port)
            setenv("MASTER_PORT", cases[i].port, 1);
        assert_int_equal(bauta_ranks_join(&ranks, &err), BAUTA_ERR_ARGUMENT);
        if (!strstr(err.message, cases[i].message))
            fail_msg("\"%s\" is not in \"%s\"", cases[i].message, err.message);
        assert_null(ranks);
    }
    environment_clear();
}

static void without_variables_there_is_one_rank(void **state)
{
    (void)state;
    bauta_ranks *ranks = NULL;
    bauta_error err = { 0 };
    environment_clear();
    assert_int_equal(bauta_ranks_join(&ranks, &err), BAUTA_OK);
    assert_int_equal(bauta_ranks_rank(ranks), 0);
    assert_int_equal(bauta_ranks_count(ranks), 1);
    assert_int_equal(bauta_ranks_sent(ranks), 0);
    assert_false(bauta_ranks_lost(ranks));
    assert_false(bauta_ranks_reported(ranks));
    bauta_ranks_abort(ranks, "nothing happens");
    bauta_ranks_free(ranks);
    assert_int_equal(bauta_ranks_connect(&ranks, 0, 3, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_ranks_connect(&ranks, 2, 2, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_ranks_connect(&ranks, 0, 2, NULL, &err),
                     BAUTA_ERR_ARGUMENT);
    assert_int_equal(bauta_ranks_count(NULL), 1);
    assert_false(bauta_ranks_reported(NULL));
    bauta_ranks_free(NULL);
}

/* Over TCP of this machine; the port is one that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof(a);
    int s = socket(AF_INET, SOCK_STREAM, 0), port = 0;
    assert_true(s >= 0 && listen(s, 1) == 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &size), 0);
    memcpy(&port, (unsigned char *)&a + 2, 2);
    close(s);
    return (port & 0xff) << 8 | port >> 8;
}

static void tcp_rank(rank_thread *self)
{
    bauta_error err = { 0 };
    bt_comm comm;
    double sum = (double)(1 << self->rank);
    for (int bit = 0; 1 << bit < self->count; bit++)
        close(self->sockets[bit]);
    bauta_status status = bt_comm_tcp(&comm, self->rank, self->count,
                                      "127.0.0.1", self->user, &err);
    if (status)
        print_error("%s\n", err.message);
    RANK_CHECK(self, status == BAUTA_OK);
    if (status)
        return;
    RANK_CHECK(self, !bt_comm_sum(&comm, &sum, 1, &err));
    RANK_CHECK(self, sum == (double)((1 << self->count) - 1));
    bt_comm_release(&comm);
}

static void ranks_find_each_other_over_tcp(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        char port[8];
        snprintf(port, sizeof(port), "%d", free_port() & 0xffff);
        ranks_run(ranks, tcp_rank, port);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_a_tree_over_ranks),
        cmocka_unit_test(sums_on_a_device_are_the_same_tree),
        cmocka_unit_test(equal_slices_send_the_formula),
        cmocka_unit_test(slices_have_owners),
        cmocka_unit_test(all_ranks_get_what_they_should),
        cmocka_unit_test(a_rank_that_fails_is_noticed_by_all),
        cmocka_unit_test(one_rank_speaks),
        cmocka_unit_test(ranks_that_do_different_things_are_told),
        cmocka_unit_test(the_environment_is_checked),
        cmocka_unit_test(without_variables_there_is_one_rank),
        cmocka_unit_test(ranks_find_each_other_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
