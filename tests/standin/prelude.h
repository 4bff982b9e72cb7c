// Before a HIP kernel's own text: what AMD's compilers build in, as variables and functions of the host.
#pragma once

static unsigned standin_group, standin_item, standin_grid;
static void standin_barrier(void);

#define __builtin_amdgcn_workgroup_id_x() standin_group
#define __builtin_amdgcn_workitem_id_x() standin_item
#define __builtin_amdgcn_grid_size_x() standin_grid
#define __builtin_amdgcn_s_barrier() standin_barrier()
#define __builtin_amdgcn_fence(order, scope) ((void)0)
#define __hip_atomic_fetch_add(address, value, order, scope) standin_fetch_add(address, value)

template <class T>
static inline T standin_fetch_add(T* address, T value) {
    const T before = *address;
    *address = before + value;
    return before;
}
