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

#ifdef STANDIN_BARRIERS
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

extern "C" char __start_standin_shared[] __attribute__((weak));
extern "C" char __stop_standin_shared[] __attribute__((weak));

struct StandinMember {
    ucontext_t context;
    bool done;
};
static StandinMember standin_members[1024];
static ucontext_t standin_scheduler;

static void standin_barrier() { swapcontext(&standin_members[standin_item].context, &standin_scheduler); }

static void standin_start_group(void (*body)(), unsigned block) {
    const size_t stack = 65536, shared = __stop_standin_shared - __start_standin_shared;
    static char* stacks = (char*)mmap(0, stack * 1024, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shared > 65536) __builtin_trap();
    memset(__start_standin_shared, 0xFF, shared);
    for (unsigned item = 0; item < block; ++item) {
        StandinMember& member = standin_members[item];
        member.done = false;
        getcontext(&member.context);
        member.context.uc_stack.ss_sp = stacks + item * stack;
        member.context.uc_stack.ss_size = stack;
        member.context.uc_link = &standin_scheduler;
        makecontext(&member.context, body, 0);
    }
}

static void standin_run_group(void (*body)(), unsigned block) {
    standin_start_group(body, block);
    unsigned waiting = block;
    for (bool forward = false; waiting; forward = !forward) {
        waiting = 0;
        for (unsigned k = 0; k < block; ++k) {
            standin_item = forward ? k : block - 1 - k;
            StandinMember& member = standin_members[standin_item];
            swapcontext(&standin_scheduler, &member.context);
            waiting += !member.done;
        }
        if (waiting && waiting != block) __builtin_trap();
    }
}
#else
static void standin_run_group(void (*body)(), unsigned block) {
    for (standin_item = 0; standin_item < block; ++standin_item) body();
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

template <class... A>
struct StandinLaunch {
    static constexpr StandinArgument arguments[] = {{sizeof(A), alignof(A), StandinIsPointer<A>::value}...};

    template <void (*kernel)(A...)>
    static void run(void** values, unsigned grid, unsigned block) {
        standin_values = values;
        standin_grid = grid * block;
        for (standin_group = grid; standin_group-- > 0;) standin_run_group(run_item<kernel>, block);
    }

    template <void (*kernel)(A...)>
    static void run_item() {
        call<kernel>(typename StandinCount<sizeof...(A)>::indices());
#ifdef STANDIN_BARRIERS
        standin_members[standin_item].done = true;
#endif
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

#define STANDIN_KERNEL(name, max_block) decltype(standin_launch_of(&name))::entry<&name>(#name, max_block),
