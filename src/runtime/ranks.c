/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - how a process becomes one of several ranks.
 *
 * Launchers tell a process its rank in variables:
 *
 *     mpirun            OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_RANK: ask MPI
 *     torchrun, hands   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *     srun              SLURM_PROCID, SLURM_STEP_NUM_TASKS: over TCP if there
 * is a MASTER_ADDR, else ask MPI */
#include "base/error.h"
#include "base/memory.h"
#include "base/size.h"
#include "runtime/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct bauta_ranks {
    bt_comm comm;
};

/* ---- the environment ----------------------------------------------------- */

/* A variable that is a number, or `otherwise` if it is not set. */
static bauta_status number_of(size_t *out, const char *name, size_t otherwise,
                              bauta_error *err)
{
    const char *text = getenv(name);
    char *end;
    *out = otherwise;
    if (!text || !*text)
        return BAUTA_OK;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || value > 1000000)
        return bt_fail(err, BAUTA_ERR_ARGUMENT, "the variable %s is \"%s\"",
                       name, bt_quote(text).text);
    *out = value;
    return BAUTA_OK;
}

/* torchrun listens at MASTER_PORT itself, so rank 0 takes the next one. */
static bauta_status port_of(char port[8], bauta_error *err)
{
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    size_t number;
    bauta_status status = number_of(&number, "MASTER_PORT", 29500, err);
    if (!status && (number == 0 || number > 65534))
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "the variable MASTER_PORT is %zu", number);
    snprintf(port, 8, "%u",
             (unsigned)(number + (agent && agent[0] == 'T')) & 0xffffu);
    return status;
}

static bauta_status tcp_join(bt_comm *comm, const char *rank_name,
                             const char *count_name, bauta_error *err)
{
    char port[8];
    size_t rank, count;
    const char *address = getenv("MASTER_ADDR");
    bauta_status status = number_of(&rank, rank_name, 0, err);
    if (!status)
        status = number_of(&count, count_name, 1, err);
    if (!status)
        status = bt_comm_count_check(count, err);
    if (!status && rank >= count)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT,
                         "the variable %s is %zu, but %s is %zu", rank_name,
                         rank, count_name, count);
    if (!status)
        status = port_of(port, err);
    if (status || count == 1)
        return status;
    if (!address || !*address)
        return bt_fail(err, BAUTA_ERR_ARGUMENT,
                       "%s is %zu, but MASTER_ADDR does not say where rank 0 "
                       "is",
                       count_name, count);
    return bt_comm_tcp(comm, (int)rank, (int)count, address, port, err);
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

static bauta_status environment_join(bt_comm *comm, bauta_error *err)
{
    size_t tasks = 1;
    if (is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMI_SIZE") ||
        is_set("MPI_LOCALNRANKS"))
        return bt_comm_mpi(comm, err);
    if (is_set("WORLD_SIZE") && is_set("RANK"))
        return tcp_join(comm, "RANK", "WORLD_SIZE", err);
    if (!is_set("SLURM_PROCID"))
        return BAUTA_OK;
    bauta_status status = number_of(&tasks, "SLURM_STEP_NUM_TASKS", 1, err);
    if (status || tasks == 1)
        return status;
    return is_set("MASTER_ADDR")
               ? tcp_join(comm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", err)
               : bt_comm_mpi(comm, err);
}

/* ---- the object ---------------------------------------------------------- */

static bauta_status ranks_make(bauta_ranks **out, const bt_comm *comm,
                               bauta_error *err)
{
    *out = bt_alloc(sizeof(**out));
    if (!*out)
        return bt_fail_memory(err, "ranks", sizeof(**out));
    (*out)->comm = *comm;
    return BAUTA_OK;
}

bauta_status bauta_ranks_join(bauta_ranks **out, bauta_error *err)
{
    BT_NEED(out, err);
    bt_comm comm = bt_comm_single();
    *out = NULL;
    bauta_status status = environment_join(&comm, err);
    if (!status)
        status = ranks_make(out, &comm, err);
    if (status)
        bt_comm_release(&comm);
    return status;
}

bauta_status bauta_ranks_connect(bauta_ranks **out, size_t rank, size_t count,
                                 const int *sockets, bauta_error *err)
{
    BT_NEED(out, err);
    *out = NULL;
    bt_comm comm = bt_comm_single();
    bauta_status status = bt_comm_count_check(count, err);
    if (!status && rank >= count)
        status = bt_fail(err, BAUTA_ERR_ARGUMENT, "there is no rank %zu of %zu",
                         rank, count);
    if (status)
        return status;
    if (count > 1) {
        BT_NEED(sockets, err);
        status = bt_comm_sockets(&comm, (int)rank, (int)count, sockets, err);
    }
    if (!status)
        status = ranks_make(out, &comm, err);
    if (status)
        bt_comm_release(&comm);
    return status;
}

size_t bauta_ranks_rank(const bauta_ranks *ranks)
{
    return ranks ? (size_t)ranks->comm.rank : 0;
}

size_t bauta_ranks_count(const bauta_ranks *ranks)
{
    return ranks ? (size_t)ranks->comm.count : 1;
}

uint64_t bauta_ranks_sent(const bauta_ranks *ranks)
{
    return ranks ? ranks->comm.sent : 0;
}

bool bauta_ranks_lost(const bauta_ranks *ranks)
{
    return ranks && ranks->comm.lost >= 0;
}

bool bauta_ranks_reported(bauta_ranks *ranks)
{
    return ranks && bt_comm_reported(&ranks->comm);
}

void bauta_ranks_abort(bauta_ranks *ranks, const char *reason)
{
    if (!ranks || !ranks->comm.transport)
        return;
    bt_comm *comm = &ranks->comm;
    const char *own = reason ? reason : "";
    comm->transport->abort(comm, comm->reason[0] ? comm->reason : own);
}

void bauta_ranks_free(bauta_ranks *ranks)
{
    if (!ranks)
        return;
    bt_comm_release(&ranks->comm);
    bt_free(ranks);
}

bauta_status bauta_context_set_ranks(bauta_context *context, bauta_ranks *ranks,
                                     bauta_error *err)
{
    BT_NEED(context, err);
    context->comm = ranks ? &ranks->comm : &context->single;
    return BAUTA_OK;
}
