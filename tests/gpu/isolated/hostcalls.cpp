// Question 9: a host function's work done in another process, in the middle of a stream.
//
// The executor (parent) owns the stream; the client (child) runs what the function stands for and lets the stream go
// on. They share a page. Every way begins with a wait of the stream that the executor ends, so that a kernel's end has
// a time.

#include "common.h"

#include <linux/futex.h>
#include <sys/syscall.h>

struct alignas(64) Line {
    volatile Word word;
};

struct Page {
    Line go, mark, answer, done;            // the stream's: begin, host's turn, host is done, end
    alignas(64) std::atomic<uint32_t> bell; // futex the client sleeps on
    alignas(64) std::atomic<uint32_t> back; // futex the callback sleeps on
    alignas(64) std::atomic<int> polls;     // whether the client polls `mark` rather than sleep
    alignas(64) std::atomic<int> by_word;   // whether it answers by `answer` rather than by `back`
    alignas(64) std::atomic<Word> ran_ns;   // when the client ran
};

static_assert(sizeof(Page) <= 4096, "one page is registered");
static Page *page;

static Word now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return Word(now.tv_sec) * 1000000000ull + Word(now.tv_nsec);
}

static void wake(std::atomic<uint32_t> &word) {
    word++;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

static void sleep_on(std::atomic<uint32_t> &word, uint32_t seen) {
    const timespec limit = {1, 0};
    if (word == seen) syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

static void client() {
    Word answered = 0;
    for (;;) {
        const uint32_t seen = page->bell;
        if (page->mark.word == answered) {
            if (page->polls)
                __builtin_ia32_pause();
            else
                sleep_on(page->bell, seen);
            continue;
        }
        answered = page->mark.word;
        page->ran_ns = now_ns();
        page->answer.word = answered;
        if (!page->by_word) wake(page->back);
    }
}

static Word turn;

// Wakes the client, and does not wait for it.
static void CUDA_CB post(void *) {
    page->mark.word = turn;
    wake(page->bell);
}

// Wakes the client, and holds the stream until it has answered; bounded.
static void CUDA_CB post_and_wait(void *) {
    post(nullptr);
    for (const Word end = now_ns() + 2000000000ull; page->answer.word < turn && now_ns() < end;) {
        const uint32_t seen = page->back;
        if (page->answer.word < turn) sleep_on(page->back, seen);
    }
}

static void CUDA_CB here(void *) { page->ran_ns = now_ns(); }

struct Way {
    const char *name;
    bool polls, by_word;
    std::function<void()> middle;
    std::function<void()> meanwhile = [] {};
    std::vector<double> ran_us = {}, whole_us = {};
};

int main() {
    page = shared<Page>();
    (void)in_child(client);
    const CUcontext context = open_device();
    MUST(cuMemHostRegister(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr base;
    MUST(cuMemHostGetDevicePointer(&base, page, 0));
    const auto of = [&](const Line &line) { return base + ((const char *)&line - (const char *)page); };
    const CUmodule module = load_kernels();
    const CUfunction tell = kernel(module, "tell"), nothing = kernel(module, "nothing");
    const CUstream stream = new_stream();
    const auto function = [&](CUhostFn call) { MUST(cuLaunchHostFunc(stream, call, nullptr)); };
    const auto goes_on = [&] { MUST(cuStreamWaitValue64(stream, of(page->answer), turn, CU_STREAM_WAIT_VALUE_GEQ)); };
    const auto mark = [&] { MUST(cuStreamWriteValue64(stream, of(page->mark), turn, 0)); };
    std::vector<Way> ways = {
        {"nothing between", true, true, [] {}},
        {"native: function in this process", true, true, [&] { function(here); }},
        {"function posts, client by futex, WaitValue64", false, true, [&] { function(post), goes_on(); }},
        {"function posts and waits, client by futex", false, false, [&] { function(post_and_wait); }},
        {"function posts, client polls, WaitValue64", true, true, [&] { function(post), goes_on(); }},
        {"WriteValue64, client polls, WaitValue64", true, true, [&] { mark(), goes_on(); }},
        {"WriteValue64, executor polls and wakes by futex, WaitValue64", false, true, [&] { mark(), goes_on(); },
         [&] {
             if (reaches(&page->mark.word, turn)) wake(page->bell);
         }},
    };
    for (int round = 0; round < 500; round++)
        for (Way &way : ways) {
            turn++;
            page->polls = way.polls, page->by_word = way.by_word, page->ran_ns = 0;
            wake(page->bell); // it may sleep, and should poll
            MUST(cuStreamWaitValue64(stream, of(page->go), turn, CU_STREAM_WAIT_VALUE_GEQ));
            MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
            way.middle();
            launch(tell, stream, 1, 1, of(page->done), turn);
            pause_us(150); // the client sleeps again
            const Word begun = now_ns();
            page->go.word = turn;
            way.meanwhile();
            if (!reaches(&page->done.word, turn)) die(way.name);
            const Word ended = now_ns(), ran = page->ran_ns;
            if (round < 10) continue;
            way.whole_us.push_back((ended - begun) / 1e3);
            if (ran) way.ran_us.push_back((ran - begun) / 1e3);
        }
    const double base_us = median(ways[0].whole_us);
    for (const Way &way : ways)
        row(9, way.name,
            &way == &ways[0]
                ? text("%.1f us", base_us)
                : text("%+.1f us (p99 %.1f)", median(way.whole_us) - base_us, at(way.whole_us, 0.99) - base_us),
            &way == &ways[0] ? "wait, two kernels, until the host sees the end"
                             : text("it runs %.1f us after the stream begins", median(way.ran_us)));
    // Whether a function that takes long holds up the functions of other streams.
    const CUstream other = new_stream();
    std::atomic<bool> first{false}, second{false};
    MUST(cuLaunchHostFunc(stream, [](void *done) { usleep(100000), *(std::atomic<bool> *)done = true; }, &first));
    usleep(10000);
    const double us = took_us([&] {
        MUST(cuLaunchHostFunc(other, [](void *done) { *(std::atomic<bool> *)done = true; }, &second));
        while (!second) __builtin_ia32_pause();
    });
    row(9, "a function beside one of 100 ms in another stream", text("%.0f us", us),
        us > 50000 ? "it waits: one thread for all" : "it does not wait");
    // What the calls take while one of them runs.
    MUST(cuCtxSynchronize());
    std::vector<double> calls;
    for (int round = 0; round < 200; round++) calls.push_back(took_us([&] { function(here); }));
    MUST(cuCtxSynchronize());
    row(9, "cuLaunchHostFunc, the call", text("%.2f us", median(calls)), "200 in a row");
    (void)context;
    return 0;
}
