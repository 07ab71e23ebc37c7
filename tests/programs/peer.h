// What programs share that are two processes: a second one that is forked before CUDA is touched, and a socket to it.
#pragma once

#include "program.h"

#include <csignal>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// Programs know by it that what NVIDIA's own driver leaves undefined is contained.
static inline bool is_contained() { return std::getenv("BULKHEAD_SOCKET") != nullptr; }

// One end of the socket between two processes.
struct Peer {
    int socket;

    void send(const void *data, size_t bytes) const {
        if (write(socket, data, bytes) != static_cast<ssize_t>(bytes)) Program::fail("the other process is gone");
    }

    void receive(void *data, size_t bytes) const {
        for (size_t got = 0; got < bytes;) {
            const ssize_t more = read(socket, static_cast<char *>(data) + got, bytes - got);
            if (more <= 0) Program::fail("the other process is gone");
            got += static_cast<size_t>(more);
        }
    }

    // Both have come this far.
    void meet() const {
        char token = 'm';
        send(&token, 1);
        receive(&token, 1);
    }

    void send_descriptor(int descriptor) const {
        char byte = 'd', room[CMSG_SPACE(sizeof descriptor)] = {};
        iovec part = {&byte, 1};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
        if (sendmsg(socket, &message, 0) != 1) Program::fail("the other process is gone");
    }

    int receive_descriptor() const {
        char byte, room[CMSG_SPACE(sizeof(int))] = {};
        iovec part = {&byte, 1};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        if (recvmsg(socket, &message, 0) != 1) Program::fail("the other process is gone");
        const cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header == nullptr || header->cmsg_type != SCM_RIGHTS) Program::fail("no descriptor came");
        int descriptor;
        std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        return descriptor;
    }
};

// A second process that does `work`. Made before CUDA is touched.
struct Second {
    pid_t process;
    Peer peer;

    template <class Work> explicit Second(Work work) {
        int ends[2];
        std::signal(SIGPIPE, SIG_IGN);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) Program::fail("no sockets");
        process = fork();
        if (process < 0) Program::fail("no second process");
        if (process == 0) {
            close(ends[0]);
            work(Peer{ends[1]});
            std::exit(0);
        }
        close(ends[1]);
        peer = Peer{ends[0]};
    }

    // Waits until it has ended well.
    void join() const {
        int status = 0;
        if (waitpid(process, &status, 0) != process || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            Program::fail("the second process ended with %#x", status);
        }
    }

    // Ends it, whatever it does.
    void end() const {
        int status = 0;
        if (kill(process, SIGKILL) != 0 || waitpid(process, &status, 0) != process) {
            Program::fail("the second process cannot be ended");
        }
    }
};
