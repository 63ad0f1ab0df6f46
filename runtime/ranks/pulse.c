/* pulse.c: see pulse.h. */
#define _GNU_SOURCE
#include "ranks/pulse.h"

#include "ranks/rendezvous.h"

#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TICK = 100,       /* ms from message to message */
    OVERSLEPT = 1000, /* ms without a tick: this process was stopped itself, and judges nobody by that time */
    GRACE = 2000,     /* ms for a rank to end by itself when another one has failed */
    QUEUED = 4096     /* bytes on the way to a peer that reads nothing: it gets no more */
};

typedef enum kind { BEAT, BYE, FAILED, KILLED, SILENT, HANGS } kind;

/* Contents of a message. A rank sends those before KILLED about itself, rank 0 the others about a rank. */
typedef struct message {
    int32_t kind, rank;
    int32_t doing, waits; /* a ga_doing; whether it waits for other ranks */
    int32_t number;       /* FAILED: exit code; SILENT, HANGS: seconds */
    int64_t cycle;
    uint64_t collective;
    char operation[32], host[64];
} message;

typedef struct ga_peer {
    int socket; /* -1: none */
    bool gone;  /* has said goodbye */
    message last;
    int64_t heard, moved; /* ms: when it was heard of; when it went on */
    char buffer[sizeof(message)];
    size_t filled; /* bytes in it */
} ga_peer;

static int64_t now_ms(void) {
    return (int64_t)(ga_clock() * 1000);
}

/* Takes what has come in from connections that end: with something left there, a close would cut off what goes out. */
static void drain(const ga_pulse *p) {
    char rest[1024];
    for (int i = 0; i < p->size; i++)
        while (p->peers[i].socket >= 0 && recv(p->peers[i].socket, rest, sizeof rest, MSG_DONTWAIT) > 0) continue;
}

/* === an end ============================================================================================= */

/* The name of the run that a checkpoint RUNS/NAME/checkpoints/CYCLE belongs to, else the path. */
static void resume_of(const char *checkpoint, char out[GA_PULSE_RESUME]) {
    const char *end = strstr(checkpoint, "/checkpoints/cycle-"), *name = end;
    while (name && name > checkpoint && name[-1] != '/') name--;
    const bool in_run = name && name - checkpoint >= 5 && memcmp(name - 5, "runs/", 5) == 0;
    if (!in_run) name = checkpoint;
    snprintf(out, GA_PULSE_RESUME, "%.*s", in_run ? (int)(end - name) : GA_PULSE_RESUME - 1, name);
}

/* The place of a rank as words of a message. */
static void place_of(const message *m, char out[160]) {
    static const char *const DOING[] = {"at the start", "in cycle %lld", "reading for cycle %lld", "saving cycle %lld",
                                        "evaluating behind cycle %lld"};
    const int known = m->doing >= 0 && m->doing < (int)(sizeof DOING / sizeof *DOING) ? m->doing : 0;
    int n = snprintf(out, 160, DOING[known], (long long)m->cycle);
    if (m->collective > 0)
        snprintf(out + n, 160 - (size_t)n, ", %.32s %llu", m->operation, (unsigned long long)m->collective);
}

static void end_with(ga_pulse *p, const message *m) {
    char how[80], place[160];
    switch (m->kind) {
    case KILLED: snprintf(how, sizeof how, "was killed (connection closed)"); break;
    case SILENT: snprintf(how, sizeof how, "was silent for %d s (GAGEN_SILENCE)", m->number); break;
    case HANGS: snprintf(how, sizeof how, "hangs, for %d s (GAGEN_TIMEOUT)", m->number); break;
    default: snprintf(how, sizeof how, "failed with code %d; its own line says why", m->number); break;
    }
    place_of(m, place);
    ga_say("rank %d on %.64s %s %s%s%.1000s", m->rank, m->host, how, place, *p->resume ? "; resume with --resume " : "",
           p->resume);
    if (m->kind == SILENT) ga_guard_kills(&p->guard);
    drain(p);
    _exit(m->kind == FAILED ? m->number : -GA_ENVIRONMENT);
}

static void send_to(const ga_peer *peer, const message *m) {
    int queued = 0;
    if (peer->socket < 0 || (ioctl(peer->socket, SIOCOUTQ, &queued) == 0 && queued > QUEUED)) return;
    (void)!send(peer->socket, m, sizeof *m, MSG_NOSIGNAL | MSG_DONTWAIT); /* a lost connection is found by receiving */
}

static void send_to_all(const ga_pulse *p, const message *m) {
    for (int i = 0; i < (p->rank == 0 ? p->size : 1); i++)
        if (i != p->rank) send_to(&p->peers[i], m);
}

/* A rank is lost. Rank 0 tells all; another rank judges rank 0 alone, and tells that one, if it should go on. */
static void judge(ga_pulse *p, int rank, kind how, int seconds) {
    message m = p->peers[rank].last;
    m.kind = how;
    m.number = seconds;
    send_to_all(p, &m);
    end_with(p, &m);
}

/* === messages =========================================================================================== */

static void take(ga_peer *peer, const message *m, int64_t now) {
    const message *last = &peer->last;
    if (m->collective != last->collective || m->doing != last->doing || m->waits != last->waits ||
        m->cycle != last->cycle)
        peer->moved = now;
    peer->heard = now;
    peer->last = *m;
}

static void hear(ga_pulse *p, int i, const message *m, int64_t now) {
    ga_peer *peer = &p->peers[i];
    if (m->kind == BEAT) {
        take(peer, m, now);
    } else if (m->kind == BYE) {
        peer->gone = true;
    } else if (m->kind == FAILED) {
        peer->gone = peer->gone || m->rank == i;
        if (p->ends) return;
        p->ends = now + GRACE;
        p->failed = i;
        peer->last = *m;
        if (p->rank == 0) send_to_all(p, m);
    } else {
        if (p->rank == 0) send_to_all(p, m);
        end_with(p, m);
    }
}

/* Takes what a peer has sent; false if its connection is closed. */
static bool receive(ga_pulse *p, int i, int64_t now) {
    ga_peer *peer = &p->peers[i];
    for (;;) {
        const size_t room = sizeof peer->buffer - peer->filled;
        const ssize_t n = recv(peer->socket, peer->buffer + peer->filled, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        peer->filled += (size_t)n;
        if (peer->filled < sizeof peer->buffer) continue;
        message m;
        memcpy(&m, peer->buffer, sizeof m);
        peer->filled = 0;
        hear(p, i, &m, now);
    }
}

static void receive_all(ga_pulse *p, int64_t now) {
    for (int i = 0; i < p->size; i++) {
        ga_peer *peer = &p->peers[i];
        if (peer->socket < 0 || receive(p, i, now)) continue;
        close(peer->socket);
        peer->socket = p->polls[i + 1].fd = -1;
        if (!peer->gone && !p->ends) judge(p, i, KILLED, 0);
    }
}

/* A message about this rank. */
static message own_message(ga_pulse *p, kind k) {
    message m = p->peers[p->rank].last; /* rank and host */
    const char *operation = atomic_load_explicit(&p->operation, memory_order_relaxed);
    m.kind = k;
    m.doing = atomic_load_explicit(&p->doing, memory_order_relaxed);
    m.waits = atomic_load_explicit(&p->since, memory_order_relaxed) != 0;
    m.cycle = atomic_load_explicit(&p->cycle, memory_order_relaxed);
    m.collective = atomic_load_explicit(&p->collective, memory_order_relaxed);
    snprintf(m.operation, sizeof m.operation, "%s", operation ? operation : "");
    return m;
}

/* === judging ============================================================================================ */

/* The rank that keeps all others from going on, or -1: one that computes if there is one, else one of those that are
 * furthest behind. */
static int hanging(const ga_pulse *p, int64_t now) {
    int worst = -1;
    for (int i = 0; i < p->size; i++) {
        const message *m = &p->peers[i].last;
        if (p->peers[i].gone) continue;
        if (now - p->peers[i].moved < p->timeout * (int64_t)1000) return -1;
        if (!m->waits && m->doing != GA_COMPUTES) return -1; /* the others may be waiting for it */
        const message *other = worst < 0 ? NULL : &p->peers[worst].last;
        if (!other || m->waits < other->waits || (m->waits == other->waits && m->collective < other->collective))
            worst = i;
    }
    return worst;
}

static void judge_all(ga_pulse *p, int64_t now) {
    for (int i = 0; i < p->size; i++) {
        const ga_peer *peer = &p->peers[i];
        if (peer->socket >= 0 && !peer->gone && now - peer->heard >= p->silence * (int64_t)1000)
            judge(p, i, SILENT, p->silence);
    }
    const int rank = p->rank == 0 ? hanging(p, now) : -1;
    if (rank >= 0) judge(p, rank, HANGS, p->timeout);
}

/* Nobody else looks: the start, before the ranks are connected, and the end, when rank 0 has gone. */
static void judge_own_wait(const ga_pulse *p, int64_t now) {
    const int64_t since = atomic_load_explicit(&p->since, memory_order_relaxed);
    if ((p->size > 0 && (p->rank == 0 || !p->peers[0].gone)) || since == 0) return;
    if (now - since < p->timeout * (int64_t)1000) return;
    char who[32] = "a rank";
    if (p->rank >= 0) snprintf(who, sizeof who, "rank %d", p->rank);
    ga_say("%s: no progress in %s for %d s (GAGEN_TIMEOUT), expected the other ranks to take part: one is dead, "
           "stopped or elsewhere", who, atomic_load_explicit(&p->operation, memory_order_relaxed), p->timeout);
    _exit(-GA_ENVIRONMENT);
}

/* This process was stopped and goes on: the others are judged by the time from now on. */
static void excuse_all(ga_pulse *p, int64_t now) {
    for (int i = 0; i < p->size; i++) p->peers[i].heard = p->peers[i].moved = now;
}

static void tick(ga_pulse *p, int64_t now) {
    if (p->ends && now >= p->ends) end_with(p, &p->peers[p->failed].last);
    if (p->size > 0 && !p->ends) {
        const message m = own_message(p, BEAT);
        if (p->rank == 0) take(&p->peers[0], &m, now);
        send_to_all(p, &m);
        judge_all(p, now);
    }
    judge_own_wait(p, now);
}

static void *run(void *arg) {
    ga_pulse *p = arg;
    int64_t last = now_ms(), next = last;
    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        struct pollfd *polls = p->polls;
        const nfds_t count = (nfds_t)p->size + 1;
        pthread_mutex_unlock(&p->lock);
        const int64_t left = next - now_ms();
        poll(polls, count, left > 0 ? (int)left : 0);
        pthread_mutex_lock(&p->lock);
        const int64_t now = now_ms();
        uint64_t rung;
        if (polls->revents && read(p->bell, &rung, sizeof rung) > 0) next = now;
        if (now - last > OVERSLEPT) excuse_all(p, now);
        last = now;
        receive_all(p, now);
        if (now < next) continue;
        tick(p, now);
        next = now + TICK;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* === the face =========================================================================================== */

static int read_seconds(const char *name, int usual, int *out, ga_err *e) {
    const char *text = getenv(name);
    char *end;
    *out = usual;
    if (!text || !*text) return GA_OK;
    const long value = strtol(text, &end, 10);
    if (*end || *text < '0' || *text > '9' || value < 1 || value > 86400)
        return ga_fail(e, GA_INPUT, "%s: '%.100s' found, seconds from 1 to 86400 expected", name, text);
    *out = (int)value;
    return GA_OK;
}

int ga_pulse_open(ga_pulse *p, bool guarded, ga_err *e) {
    sigset_t all, before;
    memset(p, 0, sizeof *p);
    p->rank = -1;
    GA_TRY(read_seconds("GAGEN_SILENCE", 10, &p->silence, e));
    GA_TRY(read_seconds("GAGEN_TIMEOUT", 600, &p->timeout, e));
    p->bell = eventfd(0, EFD_CLOEXEC);
    if (p->bell < 0) return ga_fail(e, GA_ENVIRONMENT, "eventfd: %s", strerror(errno));
    p->alone = (struct pollfd){.fd = p->bell, .events = POLLIN};
    p->polls = &p->alone;
    pthread_mutex_init(&p->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&p->thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return ga_fail(e, GA_ENVIRONMENT, "thread of the pulse: %s", strerror(rc));
    pthread_setname_np(p->thread, "pulse");
    p->guard.channel = -1;
    if (guarded) ga_guard_open(&p->guard);
    p->running = true;
    return GA_OK;
}

static void wake(const ga_pulse *p) {
    const uint64_t one = 1;
    (void)!write(p->bell, &one, sizeof one);
}

/* The connections, from rank 0 to all others. */
static int meet(ga_comm *c, int *sockets, ga_err *e) {
    ga_rendezvous r = {.rank = ga_comm_rank(c), .size = ga_comm_size(c)};
    int listener = -1;
    const int code = r.rank == 0 ? ga_rendezvous_listen_anywhere(&r, &listener, e) : GA_OK;
    GA_TRY(ga_comm_agree(c, code, e));
    ga_rendezvous first = r;
    GA_TRY(ga_comm_broadcast(c, &first, sizeof first, 0, e));
    if (r.rank == 0) return ga_rendezvous_gather(&r, listener, sockets, e);
    first.rank = r.rank;
    return ga_rendezvous_join(&first, sockets, e);
}

int ga_pulse_connect(ga_pulse *p, ga_comm *c, ga_err *e) {
    const int size = ga_comm_size(c), own = ga_comm_rank(c);
    if (size == 1) {
        ga_pulse_close(p);
        return GA_OK;
    }
    int *sockets = malloc(sizeof *sockets * (size_t)size);
    struct pollfd *polls = calloc((size_t)size + 1, sizeof *polls);
    p->peers = calloc((size_t)size, sizeof *p->peers);
    int code = sockets && polls && p->peers ? GA_OK : ga_fail(e, GA_ENVIRONMENT, "no memory for %d ranks", size);
    if (code == GA_OK) code = meet(c, sockets, e);
    if (code == GA_OK) {
        polls[0] = (struct pollfd){.fd = p->bell, .events = POLLIN};
        for (int i = 0; i < size; i++) {
            p->peers[i] = (ga_peer){.socket = sockets[i], .heard = now_ms(), .moved = now_ms()};
            p->peers[i].last = (message){.rank = i, .host = "an unknown host"};
            polls[i + 1] = (struct pollfd){.fd = sockets[i], .events = POLLRDHUP};
        }
        gethostname(p->peers[own].last.host, sizeof p->peers->last.host - 1);
        pthread_mutex_lock(&p->lock);
        p->polls = polls;
        p->rank = own;
        p->size = size;
        pthread_mutex_unlock(&p->lock);
        wake(p);
    } else {
        free(polls);
    }
    free(sockets);
    return code;
}

void ga_pulse_close(ga_pulse *p) {
    if (!p->running) return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_mutex_unlock(&p->lock);
    wake(p);
    pthread_join(p->thread, NULL);
    ga_guard_close(&p->guard);
    if (p->size > 0) {
        const message m = own_message(p, BYE);
        send_to_all(p, &m);
        drain(p);
        for (int i = 0; i < p->size; i++)
            if (p->peers[i].socket >= 0) close(p->peers[i].socket);
        free(p->polls);
    }
    free(p->peers);
    close(p->bell);
    pthread_mutex_destroy(&p->lock);
    p->running = false;
}

void ga_pulse_fail(ga_pulse *p, int exit_code) {
    if (!p->running) return;
    pthread_mutex_lock(&p->lock);
    if (p->size > 0) {
        message m = own_message(p, FAILED);
        m.number = exit_code;
        send_to_all(p, &m);
    }
    p->size = 0; /* the end is known: this rank judges nobody any more */
    ga_guard_close(&p->guard);
    pthread_mutex_unlock(&p->lock);
}

void ga_pulse_says(ga_pulse *p, ga_doing doing, int64_t cycle) {
    atomic_store_explicit(&p->cycle, cycle, memory_order_relaxed);
    const ga_doing before = (ga_doing)atomic_exchange_explicit(&p->doing, doing, memory_order_relaxed);
    const bool often = before == GA_COMPUTES ? doing == GA_READS : before == GA_READS && doing == GA_COMPUTES;
    if (p->running && doing != before && !often) wake(p);
}

void ga_pulse_saved(ga_pulse *p, const char *checkpoint) {
    if (!p->running) return;
    pthread_mutex_lock(&p->lock);
    resume_of(checkpoint, p->resume);
    pthread_mutex_unlock(&p->lock);
}

void ga_pulse_enter(ga_pulse *p, const char *operation) {
    if (!p) return;
    atomic_store_explicit(&p->operation, operation, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->collective, 1, memory_order_relaxed);
    atomic_store_explicit(&p->since, now_ms(), memory_order_release);
}

void ga_pulse_leave(ga_pulse *p) {
    if (p) atomic_store_explicit(&p->since, 0, memory_order_release);
}
