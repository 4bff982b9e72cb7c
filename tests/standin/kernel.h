// What turns a HIP kernel's own text into host code: ids as plain variables, and for each kernel a table entry with its
// arguments' layout and a loop over all its work items. Work groups run last to first, so that nothing can rely on order.
#pragma once

static unsigned standin_group, standin_item, standin_grid;
#define __builtin_amdgcn_workgroup_id_x() standin_group
#define __builtin_amdgcn_workitem_id_x() standin_item
#define __builtin_amdgcn_grid_size_x() standin_grid
#define __hip_atomic_fetch_add(address, value, order, scope) standin_fetch_add(address, value)

template <class T>
static inline T standin_fetch_add(T* address, T value) {
    const T before = *address;
    *address = before + value;
    return before;
}

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

template <class... A>
struct StandinLaunch {
    static constexpr StandinArgument arguments[] = {{sizeof(A), alignof(A), StandinIsPointer<A>::value}...};

    template <void (*kernel)(A...)>
    static void run(void** values, unsigned grid, unsigned block) {
        run_items<kernel>(values, grid, block, typename StandinCount<sizeof...(A)>::indices());
    }

    template <void (*kernel)(A...), unsigned... I>
    static void run_items(void** values, unsigned grid, unsigned block, StandinIndices<I...>) {
        standin_grid = grid * block;
        for (standin_group = grid; standin_group-- > 0;)
            for (standin_item = 0; standin_item < block; ++standin_item) kernel(*static_cast<A*>(values[I])...);
    }

    template <void (*kernel)(A...)>
    static constexpr StandinKernel entry(const char* name, unsigned max_block) {
        return {name, max_block, sizeof...(A), arguments, run<kernel>};
    }
};

template <class... A>
StandinLaunch<A...> standin_launch_of(void (*)(A...));
