// Behind a HIP kernel's own text: for each kernel a table entry with its arguments' layout and a loop over its work items.
//
// Work groups run last to first, so that nothing can rely on their order. In a module with barriers each item has a
// stack of its own and runs from barrier to barrier, items in turn forward and backward; shared memory holds NaN when a
// group starts. Items of a group that do not all reach the same barrier trap.
#pragma once

struct StandinArgument {
    unsigned size, alignment;
    bool pointer;
};

struct StandinKernel {
    const char* name;
    unsigned max_block, count;
    const StandinArgument* arguments;
    void (*run)(void** arguments, unsigned grid, unsigned block);  // grid in work groups
};

static void (*standin_body)();  // runs the present item

#ifdef STANDIN_BARRIERS
#include <setjmp.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

extern "C" char __start_standin_shared[] __attribute__((weak));
extern "C" char __stop_standin_shared[] __attribute__((weak));

struct StandinMember {
    ucontext_t beginning;
    jmp_buf place;  // where it goes on
    bool started, done;
};
static StandinMember standin_members[1024];
static jmp_buf standin_scheduler;
static bool standin_running;  // still set when a launch begins: the one before trapped

static void standin_barrier() {
    if (!_setjmp(standin_members[standin_item].place)) _longjmp(standin_scheduler, 1);
}

static void standin_member_main() {
    for (;;) {
        standin_body();
        standin_members[standin_item].done = true;
        standin_barrier();  // until the next group
    }
}

// Lets the present item run up to its next barrier. Contexts only begin items, since changing them takes system calls.
static __attribute__((noinline)) void standin_resume() {
    StandinMember& member = standin_members[standin_item];
    if (_setjmp(standin_scheduler)) return;
    if (member.started) _longjmp(member.place, 1);
    member.started = true;
    setcontext(&member.beginning);
}

static void standin_begin_launch() {
    const size_t stack = 65536;
    static char* stacks = (char*)mmap(0, stack * 1024, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (standin_running || !standin_members[0].beginning.uc_stack.ss_sp)
        for (StandinMember& member : standin_members) {
            member.started = false;
            getcontext(&member.beginning);
            member.beginning.uc_stack.ss_sp = stacks + (&member - standin_members) * stack;
            member.beginning.uc_stack.ss_size = stack;
            makecontext(&member.beginning, standin_member_main, 0);
        }
    standin_running = true;
}

static void standin_end_launch() { standin_running = false; }

static void standin_run_group(unsigned block) {
    const size_t shared = __stop_standin_shared - __start_standin_shared;
    if (shared > 65536) __builtin_trap();
    memset(__start_standin_shared, 0xFF, shared);
    for (unsigned item = 0; item < block; ++item) standin_members[item].done = false;
    unsigned waiting = block;
    for (bool forward = false; waiting; forward = !forward) {
        waiting = 0;
        for (unsigned k = 0; k < block; ++k) {
            standin_item = forward ? k : block - 1 - k;
            standin_resume();
            waiting += !standin_members[standin_item].done;
        }
        if (waiting && waiting != block) __builtin_trap();
    }
}
#else
static void standin_begin_launch() {}
static void standin_end_launch() {}
static void standin_run_group(unsigned block) {
    for (standin_item = 0; standin_item < block; ++standin_item) standin_body();
}
#endif

template <class T>
struct StandinIsPointer {
    static constexpr bool value = false;
};
template <class T>
struct StandinIsPointer<T*> {
    static constexpr bool value = true;
};

template <unsigned... I>
struct StandinIndices {};
template <unsigned N, unsigned... I>
struct StandinCount : StandinCount<N - 1, N - 1, I...> {};
template <unsigned... I>
struct StandinCount<0, I...> {
    typedef StandinIndices<I...> indices;
};

static void** standin_values;

// Internal to a module: two modules may each have a type of one name, and a loader would make their layouts one.
namespace {

template <class... A>
struct StandinLaunch {
    static constexpr StandinArgument arguments[] = {{sizeof(A), alignof(A), StandinIsPointer<A>::value}...};

    template <void (*kernel)(A...)>
    static void run(void** values, unsigned grid, unsigned block) {
        standin_values = values;
        standin_body = run_item<kernel>;
        standin_grid = grid * block;
        standin_begin_launch();
        for (standin_group = grid; standin_group-- > 0;) standin_run_group(block);
        standin_end_launch();
    }

    template <void (*kernel)(A...)>
    static void run_item() {
        call<kernel>(typename StandinCount<sizeof...(A)>::indices());
    }

    template <void (*kernel)(A...), unsigned... I>
    static void call(StandinIndices<I...>) {
        kernel(*static_cast<A*>(standin_values[I])...);
    }

    template <void (*kernel)(A...)>
    static constexpr StandinKernel entry(const char* name, unsigned max_block) {
        return {name, max_block, sizeof...(A), arguments, run<kernel>};
    }
};

template <class... A>
StandinLaunch<A...> standin_launch_of(void (*)(A...));

}  // namespace

#define STANDIN_KERNEL(name, max_block) decltype(standin_launch_of(&name))::entry<&name>(#name, max_block),
