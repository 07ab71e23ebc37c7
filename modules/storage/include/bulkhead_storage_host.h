/* Block storage for host code in C and C++, such as that of CUDA programs: docs/MODULES.md. What it reaches, kernels reach by
 * bulkhead_storage.cuh, with the same extents, blocks and codes.
 *
 *   struct bulkhead_storage storage;
 *   char why[256];
 *   if (bulkhead_storage_open(&storage, "RUNTIME/storage.module.sock", "write:scratch", why, sizeof why) != 0) puts(why);
 *   uint32_t code = bulkhead_storage_write(&storage, 0, 0, 8, bytes);
 *   if (code == BULKHEAD_STORAGE_DONE) code = bulkhead_storage_flush(&storage, 0);
 *   bulkhead_storage_close(&storage);
 *
 * One thread at a time. This is the caller's code like any other: what it may do, the module's host half checks. */
#ifndef BULKHEAD_STORAGE_HOST_H
#define BULKHEAD_STORAGE_HOST_H

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What is answered: DONE, a code of the gates, or FAILED and the status of the device. */
#define BULKHEAD_STORAGE_DONE 0u
#define BULKHEAD_STORAGE_FAILED 0x80000000u
#define BULKHEAD_STORAGE_GONE 0xFFFFFFF7u /* the module has ended, or has ended this instance */

/* The memory that is shared, as modules/storage/src/wire.rs and modules/api/src/host.rs lay it out. */
#define BULKHEAD_STORAGE_SLEEPS 0
#define BULKHEAD_STORAGE_WAITS 64
#define BULKHEAD_STORAGE_TAIL 128
#define BULKHEAD_STORAGE_REQUESTS 4096
#define BULKHEAD_STORAGE_ANSWERS 12288
#define BULKHEAD_STORAGE_DATA 16384
#define BULKHEAD_STORAGE_BUFFERS 256u
#define BULKHEAD_STORAGE_BYTES 1064960

struct bulkhead_storage {
    int connection;
    unsigned char *memory;
    uint32_t tail, mark;
};

struct bulkhead_storage_request {
    uint32_t buffer, operation, extent, count;
    uint64_t block;
    uint32_t mark, unused;
};

static inline void bulkhead_storage_close(struct bulkhead_storage *storage) {
    if (storage->memory != NULL) munmap(storage->memory, BULKHEAD_STORAGE_BYTES);
    if (storage->connection >= 0) close(storage->connection);
    storage->memory = NULL;
    storage->connection = -1;
}

/* What the module answers, one line, and the descriptor that comes with it; -1: none. */
static inline int bulkhead_storage_answer(int connection, char *line, size_t bytes) {
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = {line, 1};
    struct msghdr message;
    int memory = -1;
    size_t length;
    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
    struct cmsghdr *with = CMSG_FIRSTHDR(&message);
    if (with != NULL && with->cmsg_level == SOL_SOCKET && with->cmsg_type == SCM_RIGHTS) {
        memcpy(&memory, CMSG_DATA(with), sizeof memory);
    }
    for (length = 1; length + 1 < bytes && recv(connection, line + length, 1, 0) == 1 && line[length] != '\n';) length++;
    line[length] = 0;
    return memory;
}

/* Opens extents at a module's socket: read:NAME or write:NAME, @FIRST+BLOCKS behind it for a part, with commas between. 0, or -1
 * and why. */
static inline int bulkhead_storage_open(struct bulkhead_storage *storage, const char *socket_path, const char *extents, char *why,
                                        size_t why_bytes) {
    struct sockaddr_un address;
    struct timeval patience = {60, 0};
    char line[4096];
    int length = snprintf(line, sizeof line, "host %s\n", extents), memory;
    memset(storage, 0, sizeof *storage);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    storage->connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(socket_path) >= sizeof address.sun_path || length < 0 || (size_t)length >= sizeof line || strchr(extents, '\n')) {
        snprintf(why, why_bytes, "the socket's path or the extents are too long, or more than a line");
        bulkhead_storage_close(storage);
        return -1;
    }
    strcpy(address.sun_path, socket_path);
    setsockopt(storage->connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(storage->connection, (struct sockaddr *)&address, sizeof address) != 0 ||
        send(storage->connection, line, (size_t)length, MSG_NOSIGNAL) != length) {
        snprintf(why, why_bytes, "no module serves at %s", socket_path);
        bulkhead_storage_close(storage);
        return -1;
    }
    line[0] = 0;
    memory = bulkhead_storage_answer(storage->connection, line, sizeof line);
    if (memory < 0 || strncmp(line, "memory ", 7) != 0 || strtoull(line + 7, NULL, 10) < BULKHEAD_STORAGE_BYTES) {
        snprintf(why, why_bytes, "%s", line[0] != 0 ? line : "the module has ended");
    } else {
        void *at = mmap(NULL, BULKHEAD_STORAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
        if (at != MAP_FAILED) storage->memory = (unsigned char *)at;
        else snprintf(why, why_bytes, "the memory cannot be mapped");
    }
    if (memory >= 0) close(memory);
    if (storage->memory != NULL) return 0;
    bulkhead_storage_close(storage);
    return -1;
}

static inline uint32_t *bulkhead_storage_word(struct bulkhead_storage *storage, size_t offset) {
    return (uint32_t *)(void *)(storage->memory + offset);
}

static inline void bulkhead_storage_submit(struct bulkhead_storage *storage, struct bulkhead_storage_request request) {
    const size_t place = storage->tail % BULKHEAD_STORAGE_BUFFERS * sizeof request;
    request.mark = storage->mark;
    memcpy(storage->memory + BULKHEAD_STORAGE_REQUESTS + place, &request, sizeof request);
    storage->tail++;
    __atomic_store_n(bulkhead_storage_word(storage, BULKHEAD_STORAGE_TAIL), storage->tail, __ATOMIC_RELEASE);
}

static inline void bulkhead_storage_ring(struct bulkhead_storage *storage) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (__atomic_load_n(bulkhead_storage_word(storage, BULKHEAD_STORAGE_SLEEPS), __ATOMIC_RELAXED) != 0) {
        /* Where there is no room for a byte the module has some to read. */
        if (send(storage->connection, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
    }
}

/* Waits for a buffer's answer. */
static inline uint32_t bulkhead_storage_wait(struct bulkhead_storage *storage, uint32_t buffer) {
    uint64_t *answer = (uint64_t *)(void *)(storage->memory + BULKHEAD_STORAGE_ANSWERS) + buffer;
    for (uint32_t turn = 0;; turn++) {
        const uint64_t word = __atomic_load_n(answer, __ATOMIC_ACQUIRE);
        char bytes[64];
        struct pollfd waits = {storage->connection, POLLIN, 0};
        if (word >> 32 == storage->mark) return (uint32_t)word;
        if (turn < 2000) continue;
        if (turn % 2 == 0) {
            /* It is looked once more behind this. */
            __atomic_store_n(bulkhead_storage_word(storage, BULKHEAD_STORAGE_WAITS), 1, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
        } else if (poll(&waits, 1, 100) > 0 && recv(storage->connection, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) {
            return BULKHEAD_STORAGE_GONE;
        }
    }
}

/* Reads (2) or writes (1) any number of blocks, in commands of 8 of which 256 are on their way at once. */
static inline uint32_t bulkhead_storage_move(struct bulkhead_storage *storage, uint32_t operation, uint32_t extent, uint64_t block,
                                             uint64_t count, unsigned char *memory) {
    uint32_t code = BULKHEAD_STORAGE_DONE;
    if (storage->memory == NULL) return BULKHEAD_STORAGE_GONE;
    while (count > 0 && code == BULKHEAD_STORAGE_DONE) {
        const uint64_t most = 8 * BULKHEAD_STORAGE_BUFFERS, now = count < most ? count : most;
        const uint32_t commands = (uint32_t)((now + 7) / 8);
        unsigned char *data = storage->memory + BULKHEAD_STORAGE_DATA;
        storage->mark = storage->mark == UINT32_MAX ? 1 : storage->mark + 1;
        if (operation == 1) memcpy(data, memory, now * 512);
        for (uint32_t at = 0; at < commands; at++) {
            const uint32_t blocks = (uint32_t)(now - at * 8u < 8 ? now - at * 8u : 8);
            const struct bulkhead_storage_request request = {at, operation, extent, blocks, block + at * 8u, 0, 0};
            bulkhead_storage_submit(storage, request);
        }
        bulkhead_storage_ring(storage);
        for (uint32_t at = 0; at < commands; at++) {
            const uint32_t answered = bulkhead_storage_wait(storage, at);
            if (answered == BULKHEAD_STORAGE_GONE) {
                /* It is not known what is on its way. */
                bulkhead_storage_close(storage);
                return answered;
            }
            if (code == BULKHEAD_STORAGE_DONE) code = answered;
        }
        if (operation == 2 && code == BULKHEAD_STORAGE_DONE) memcpy(memory, data, now * 512);
        memory += now * 512;
        block += now;
        count -= now;
    }
    return code;
}

/* Reads `count` blocks of an extent, from `block` on. */
static inline uint32_t bulkhead_storage_read(struct bulkhead_storage *storage, uint32_t extent, uint64_t block, uint64_t count, void *to) {
    return bulkhead_storage_move(storage, 2, extent, block, count, (unsigned char *)to);
}

/* Writes. Some of the blocks may be written where it does not answer DONE. */
static inline uint32_t bulkhead_storage_write(struct bulkhead_storage *storage, uint32_t extent, uint64_t block, uint64_t count,
                                              const void *from) {
    return bulkhead_storage_move(storage, 1, extent, block, count, (unsigned char *)(uintptr_t)from);
}

/* What was written to the extent's namespace, and has ended, is durable when this answers DONE. */
static inline uint32_t bulkhead_storage_flush(struct bulkhead_storage *storage, uint32_t extent) {
    const struct bulkhead_storage_request request = {0, 0, extent, 0, 0, 0, 0};
    uint32_t code;
    if (storage->memory == NULL) return BULKHEAD_STORAGE_GONE;
    storage->mark = storage->mark == UINT32_MAX ? 1 : storage->mark + 1;
    bulkhead_storage_submit(storage, request);
    bulkhead_storage_ring(storage);
    code = bulkhead_storage_wait(storage, 0);
    if (code == BULKHEAD_STORAGE_GONE) bulkhead_storage_close(storage);
    return code;
}

#endif
