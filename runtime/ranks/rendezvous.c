/* rendezvous.c: rank 0 listens; the others connect and send a hello with their rank. A connection
 * without a valid hello within two seconds is dropped. */
#include "ranks/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HELLO_SECONDS = 2, RETRY_MS = 100 };

/* First message of both sides. Native byte order: a peer of another order has another magic and is dropped. */
typedef struct hello {
    uint64_t magic, nonce;
    int32_t rank, size;
} hello;

static const uint64_t hello_magic = 0x6761676e72647631u;

/* Reads a number from the variable `name`; -1 if it is not set. */
static int read_number(const char *name, int low, int high, int *out, ga_err *e) {
    const char *text = getenv(name);
    char *end;
    *out = -1;
    if (!text) return GA_OK;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || value < low || value > high)
        return ga_fail(e, GA_INPUT, "%s: '%.60s' found, a number from %d to %d expected", name,
                       text, low, high);
    *out = (int)value;
    return GA_OK;
}

/* Hash of the group's size and of the launcher's job identifiers, so that two jobs on one port do not mix. */
static uint64_t nonce_of(const ga_rendezvous *r) {
    static const char *const names[] = {"GAGEN_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    uint64_t h = 0xcbf29ce484222325u + (uint64_t)r->size;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        for (; text && *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
        h = (h ^ 0xff) * 0x100000001b3u;
    }
    return h;
}

int ga_rendezvous_read(ga_rendezvous *r, ga_err *e) {
    const char *address = getenv("MASTER_ADDR");
    int port;
    memset(r, 0, sizeof *r);
    GA_TRY(read_number("WORLD_SIZE", 1, GA_RANKS_MAX, &r->size, e));
    GA_TRY(read_number("RANK", 0, GA_RANKS_MAX - 1, &r->rank, e));
    GA_TRY(read_number("MASTER_PORT", 1, 65535, &port, e));
    if (r->size < 0 && r->rank < 0) {
        r->size = 1;
        r->rank = 0;
        return GA_OK;
    }
    if (r->size < 0 || r->rank < 0)
        return ga_fail(e, GA_INPUT, "%s is set and %s is not: the launcher sets both",
                       r->size < 0 ? "RANK" : "WORLD_SIZE", r->size < 0 ? "WORLD_SIZE" : "RANK");
    if (r->rank >= r->size)
        return ga_fail(e, GA_INPUT, "RANK: %d found, less than WORLD_SIZE (%d) expected", r->rank,
                       r->size);
    if (r->size == 1) return GA_OK;
    if (!address || !*address || strlen(address) >= sizeof r->address)
        return ga_fail(e, GA_INPUT,
                       "MASTER_ADDR: the name or address of rank 0's machine expected");
    if (port < 0)
        return ga_fail(e, GA_INPUT, "MASTER_PORT is not set: a number from 1 to 65535 expected");
    snprintf(r->address, sizeof r->address, "%s", address);
    snprintf(r->port, sizeof r->port, "%d", port);
    r->nonce = nonce_of(r);
    return GA_OK;
}

static void pause_ms(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* Polls the socket until the deadline; false after it. */
static bool wait_for(int socket, short events, double deadline) {
    for (;;) {
        double left = deadline - ga_clock();
        if (left <= 0) return false;
        struct pollfd p = {socket, events, 0};
        int n = poll(&p, 1, (int)(left * 1000) + 1);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

/* Sends or receives all bytes before the deadline. */
static bool move_all(int socket, void *data, size_t bytes, bool sending, double deadline) {
    char *at = data;
    while (bytes > 0) {
        if (!wait_for(socket, sending ? POLLOUT : POLLIN, deadline)) return false;
        ssize_t n = sending ? send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                            : recv(socket, at, bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* No delay for small messages; keep-alive, so that a lost machine is noticed. */
static void tune(int socket) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static int resolve(const ga_rendezvous *r, const char *address, struct addrinfo **out, ga_err *e) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int rc = getaddrinfo(address, r->port, &hints, out);
    if (rc == 0) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "MASTER_ADDR: '%.100s': %s", address, gai_strerror(rc));
}

static bool is_loopback(const ga_rendezvous *r) {
    return !strcmp(r->address, "127.0.0.1") || !strcmp(r->address, "localhost");
}

/* Listens on all addresses, unless MASTER_ADDR is a loopback address and so every rank is on this machine:
 * rank 0's own name may resolve to a loopback address here and to another one elsewhere. */
static int open_listener(const ga_rendezvous *r, int *out, ga_err *e) {
    struct sockaddr_in here = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(r->port)),
        .sin_addr.s_addr = htonl(is_loopback(r) ? INADDR_LOOPBACK : INADDR_ANY)};
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = here.sin_port};
    int on = 1, family = is_loopback(r) ? AF_INET : AF_INET6;
    int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 && family == AF_INET6) s = socket(family = AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0) setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr *at = family == AF_INET6 ? (struct sockaddr *)&any : (struct sockaddr *)&here;
    socklen_t bytes = family == AF_INET6 ? sizeof any : sizeof here;
    if (s >= 0 && bind(s, at, bytes) == 0 && listen(s, GA_RANKS_MAX) == 0) {
        *out = s;
        return GA_OK;
    }
    int code = ga_fail(e, GA_ENVIRONMENT, "rank 0: MASTER_PORT %s: %s", r->port, strerror(errno));
    if (s >= 0) close(s);
    return code;
}

/* The rank that a new connection says hello for; -1 if the hello is not valid. */
static int welcome(const ga_rendezvous *r, int socket, const int *sockets) {
    hello h;
    double deadline = ga_clock() + HELLO_SECONDS;
    if (!move_all(socket, &h, sizeof h, false, deadline)) return -1;
    if (h.magic != hello_magic || h.nonce != r->nonce || h.size != r->size) return -1;
    if (h.rank < 1 || h.rank >= r->size || sockets[h.rank] >= 0) return -1;
    hello answer = {hello_magic, r->nonce, 0, r->size};
    return move_all(socket, &answer, sizeof answer, true, deadline) ? h.rank : -1;
}

static int fail_missing(const ga_rendezvous *r, const int *sockets, ga_err *e) {
    char list[128] = "";
    size_t used = 0;
    for (int i = 1; i < r->size && used < sizeof list - 8; i++)
        if (sockets[i] < 0) used += (size_t)snprintf(list + used, sizeof list - used, " %d", i);
    return ga_fail(e, GA_ENVIRONMENT, "rank 0 waited %d s at port %s; these ranks did not connect:%s",
                   GA_RENDEZVOUS_SECONDS, r->port, list);
}

static double begin(const ga_rendezvous *r, int *sockets) {
    for (int i = 0; i < r->size; i++) sockets[i] = -1;
    return ga_clock() + GA_RENDEZVOUS_SECONDS;
}

/* Rank 0 accepts connections until all ranks are there. */
int ga_rendezvous_gather(const ga_rendezvous *r, int listener, int *sockets, ga_err *e) {
    const double deadline = begin(r, sockets);
    int missing = r->size - 1;
    while (missing > 0 && wait_for(listener, POLLIN, deadline)) {
        int s = accept(listener, NULL, NULL);
        if (s < 0) continue;
        fcntl(s, F_SETFD, FD_CLOEXEC);
        int rank = welcome(r, s, sockets);
        if (rank < 0) {
            close(s);
            continue;
        }
        tune(s);
        sockets[rank] = s;
        missing--;
    }
    close(listener);
    return missing == 0 ? GA_OK : fail_missing(r, sockets, e);
}

/* A socket on which rank 0 has answered, or -1. */
static int try_address(const ga_rendezvous *r, const struct addrinfo *a) {
    hello h = {hello_magic, r->nonce, r->rank, r->size}, answer;
    int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0) return -1;
    double deadline = ga_clock() + HELLO_SECONDS + 1;
    const struct timeval limit = {.tv_sec = HELLO_SECONDS};
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* of connect: an address may lead nowhere */
    if (connect(s, a->ai_addr, a->ai_addrlen) == 0 && move_all(s, &h, sizeof h, true, deadline) &&
        move_all(s, &answer, sizeof answer, false, deadline) && answer.magic == hello_magic &&
        answer.nonce == r->nonce && answer.rank == 0 && answer.size == r->size)
        return s;
    close(s);
    return -1;
}

/* A socket by one of the addresses with this name, or -1; *code is negative if the name leads nowhere. */
static int try_name(const ga_rendezvous *r, const char *name, int *code, ga_err *e) {
    struct addrinfo *list = NULL;
    int s = -1;
    *code = resolve(r, name, &list, e);
    for (struct addrinfo *a = list; *code == 0 && a && s < 0; a = a->ai_next) s = try_address(r, a);
    if (*code == 0) freeaddrinfo(list);
    return s;
}

/* Another rank connects to rank 0; it retries until the deadline. */
int ga_rendezvous_join(const ga_rendezvous *r, int *sockets, ga_err *e) {
    const double deadline = begin(r, sockets);
    while (sockets[0] < 0 && ga_clock() < deadline) {
        char names[sizeof r->address], *rest = names, *name;
        int code = 0;
        memcpy(names, r->address, sizeof names);
        while (sockets[0] < 0 && (name = strsep(&rest, " "))) sockets[0] = try_name(r, name, &code, e);
        if (sockets[0] < 0) pause_ms(RETRY_MS);
        if (code < 0 && ga_clock() >= deadline) return code;
    }
    if (sockets[0] < 0)
        return ga_fail(e, GA_ENVIRONMENT, "rank %d: no rank 0 of this job at %.100s:%s within %d s",
                       r->rank, r->address, r->port, GA_RENDEZVOUS_SECONDS);
    tune(sockets[0]);
    return GA_OK;
}

int ga_rendezvous_connect(const ga_rendezvous *r, int *sockets, ga_err *e) {
    int listener;
    begin(r, sockets);
    if (r->size == 1) return GA_OK;
    if (r->rank > 0) return ga_rendezvous_join(r, sockets, e);
    GA_TRY(open_listener(r, &listener, e));
    return ga_rendezvous_gather(r, listener, sockets, e);
}

/* The addresses of this machine that others may reach, and at last the one that only ranks on it reach. */
static void list_addresses(char *out, size_t size) {
    struct ifaddrs *list = NULL;
    size_t used = 0;
    if (getifaddrs(&list) != 0) list = NULL;
    for (const struct ifaddrs *a = list; a; a = a->ifa_next) {
        char text[INET_ADDRSTRLEN];
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP) ||
            (a->ifa_flags & IFF_LOOPBACK) || used + sizeof text + sizeof "127.0.0.1" > size)
            continue;
        inet_ntop(AF_INET, &((const struct sockaddr_in *)a->ifa_addr)->sin_addr, text, sizeof text);
        used += (size_t)snprintf(out + used, size - used, "%s ", text);
    }
    snprintf(out + used, size - used, "127.0.0.1");
    freeifaddrs(list);
}

int ga_rendezvous_listen_anywhere(ga_rendezvous *r, int *listener, ga_err *e) {
    struct sockaddr_in6 at;
    socklen_t bytes = sizeof at;
    list_addresses(r->address, sizeof r->address);
    snprintf(r->port, sizeof r->port, "0");
    r->nonce = (uint64_t)(ga_clock() * 1e9) ^ (uint64_t)getpid() << 40;
    GA_TRY(open_listener(r, listener, e));
    if (getsockname(*listener, (struct sockaddr *)&at, &bytes) == 0) {
        snprintf(r->port, sizeof r->port, "%d", ntohs(at.sin6_port)); /* sin_port of IPv4 lies there too */
        return GA_OK;
    }
    close(*listener);
    return ga_fail(e, GA_ENVIRONMENT, "rank 0: its port: %s", strerror(errno));
}
