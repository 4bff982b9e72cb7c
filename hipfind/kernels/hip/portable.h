// One source, three compilers: hiprtc or clang for AMD, NVRTC for NVIDIA, any C++17 compiler for the host.
//
// A kernel is written as a loop over independent work items:
//
//     HF_KERNEL(scale, const elem_t* x, elem_t* y, ScaleParams p) {
//         HF_FOR_ITEMS(i) y[i] = store<elem_t>(load(x[i]) * acc_t(p.alpha));
//     }
//
// On a GPU the items are dealt to threads in a grid-stride loop, so any item count fits any grid. On the host the
// caller gives a sub-range to each of its threads. Arguments are pointers first; what is not a pointer comes last, as
// one struct by value made of int64 and double fields only.
//
// Where items share intermediate results, a kernel works in groups instead, in phases with a barrier between them:
//
//     HF_SHARED acc_t part[64];
//     HF_FOR_GROUPS(g) {
//         HF_FOR_MEMBERS(t, 64) part[t] = ...;
//         HF_BARRIER();
//         HF_FOR_MEMBERS(t, 8) ... = part[8 * t] + ...;
//         HF_BARRIER();
//     }
//
// A group is a thread block, HF_BLOCK items of the launch, on a GPU. On the host it is one item, or HF_GROUP items where
// that is defined, and runs the members of a phase one after the other. So nothing but shared arrays lives from one
// phase to the next.
//
// The compiler is told by a definition who it is: HF_HOST, HF_HIP or HF_CUDA; ELEM names the element type
// (fp32, fp16, bf16, fp64). No C or C++ library is used.
#pragma once

#if !defined(HF_HOST) && !defined(HF_HIP) && !defined(HF_CUDA)
#error "define one of HF_HOST, HF_HIP, HF_CUDA"
#endif
#ifndef HF_BLOCKS
#define HF_BLOCKS 3  // that a compute unit should hold at once: the fewer, the more registers
#endif
#ifndef HF_BLOCK
#define HF_BLOCK 256
#endif

typedef long long int64;
typedef unsigned int uint32;
typedef unsigned short uint16;

#if defined(HF_HOST)
#define HF_DEVICE static inline
#define HF_RESTRICT __restrict__
#define HF_KERNEL(name, ...) extern "C" void name(int64 hf_begin, int64 hf_end, __VA_ARGS__)
#define HF_FOR_ITEMS(i) for (int64 i = hf_begin; i < hf_end; ++i)
#ifndef HF_GROUP
#define HF_GROUP 1
#endif
#define HF_FOR_GROUPS(g) \
    for (int64 g = (hf_begin + HF_GROUP - 1) / HF_GROUP; g < (hf_end + HF_GROUP - 1) / HF_GROUP; ++g)
#define HF_FOR_MEMBERS(t, count) for (int t = 0; t < (count); ++t)
#define HF_SHARED alignas(64)
#define HF_BARRIER()
#elif defined(HF_HIP)
// Compiled without hip_runtime.h: ids come from the compiler's builtins.
#define HF_DEVICE static inline __attribute__((device))
#define HF_RESTRICT __restrict__
#define HF_KERNEL(name, ...)                                                                                   \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, HF_BLOCK))) void name(    \
        int64 hf_items, __VA_ARGS__)
#define HF_FOR_ITEMS(i)                                                                                        \
    for (int64 i = int64(__builtin_amdgcn_workgroup_id_x()) * HF_BLOCK + __builtin_amdgcn_workitem_id_x();     \
         i < hf_items; i += int64(__builtin_amdgcn_grid_size_x()))
#define HF_FOR_GROUPS(g)                                                                                       \
    for (int64 g = __builtin_amdgcn_workgroup_id_x(); g < hf_items / HF_BLOCK;                                 \
         g += __builtin_amdgcn_grid_size_x() / HF_BLOCK)
#define HF_FOR_MEMBERS(t, count)                                                                               \
    for (int t = int(__builtin_amdgcn_workitem_id_x()); t < (count); t += HF_BLOCK)
#define HF_SHARED alignas(64) __attribute__((shared))
#define HF_BARRIER()                                                                                           \
    (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"), __builtin_amdgcn_s_barrier(),                      \
     __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"))
#else
#define HF_DEVICE static inline __device__
#define HF_RESTRICT __restrict__
// At least 3 blocks a multiprocessor leave 80 registers a thread; by itself the compiler takes 64 and spills.
#define HF_KERNEL(name, ...) \
    extern "C" __global__ void __launch_bounds__(HF_BLOCK, HF_BLOCKS) name(int64 hf_items, __VA_ARGS__)
#define HF_FOR_ITEMS(i)                                                                                        \
    for (int64 i = int64(blockIdx.x) * HF_BLOCK + threadIdx.x; i < hf_items; i += int64(gridDim.x) * HF_BLOCK)
#define HF_FOR_GROUPS(g) for (int64 g = blockIdx.x; g < hf_items / HF_BLOCK; g += gridDim.x)
#define HF_FOR_MEMBERS(t, count) for (int t = int(threadIdx.x); t < (count); t += HF_BLOCK)
#define HF_SHARED alignas(64) __shared__
#define HF_BARRIER() __syncthreads()
#endif

// Quotient of numbers that are not negative. 64-bit division is slow, most of all on GPUs; most indices fit 32 bits.
HF_DEVICE int64 quotient(int64 a, int64 b) {
    return ((a | b) >> 32) == 0 ? int64(uint32(a) / uint32(b)) : a / b;
}

typedef float fp32;
typedef double fp64;
struct bf16 {
    uint16 bits;
};
struct fp16 {
    uint16 bits;
};

#if defined(HF_CUDA)
#define HF_COPY_BITS memcpy  // NVRTC knows it without a header, but not the builtin
#else
#define HF_COPY_BITS __builtin_memcpy
#endif

HF_DEVICE uint32 bits_of(float value) {
    uint32 bits;
    HF_COPY_BITS(&bits, &value, 4);
    return bits;
}

HF_DEVICE float float_of(uint32 bits) {
    float value;
    HF_COPY_BITS(&value, &bits, 4);
    return value;
}

// load: element to the type that sums are kept in.
HF_DEVICE float load(fp32 value) { return value; }
HF_DEVICE double load(fp64 value) { return value; }
HF_DEVICE float load(bf16 value) { return float_of(uint32(value.bits) << 16); }

#if defined(HF_CUDA)
HF_DEVICE float load(fp16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}
HF_DEVICE uint16 half_bits(float value) {
    uint16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
}
#elif (defined(HF_HIP) || defined(__FLT16_MANT_DIG__)) && !defined(HF_HALF_BY_BITS)
HF_DEVICE float load(fp16 value) {
    _Float16 half;
    HF_COPY_BITS(&half, &value.bits, 2);
    return float(half);
}
HF_DEVICE uint16 half_bits(float value) {
    _Float16 half = _Float16(value);
    uint16 bits;
    HF_COPY_BITS(&bits, &half, 2);
    return bits;
}
#else
// Host compilers without _Float16 (HF_HALF_BY_BITS asks for this branch anywhere): exact conversions by arithmetic on
// the bits. Multiplying by 2^112 moves the exponent's bias from 15 to 127 and makes subnormals right as well.
HF_DEVICE float load(fp16 value) {
    uint32 magnitude = uint32(value.bits & 0x7fff) << 13;
    uint32 sign = uint32(value.bits & 0x8000) << 16;
    float scaled = float_of(magnitude) * 0x1p112f;
    uint32 special = (value.bits & 0x7c00) == 0x7c00 ? 0x7f800000u | magnitude : bits_of(scaled);
    return float_of(special | sign);
}
HF_DEVICE uint16 half_bits(float value) {
    uint32 bits = bits_of(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return uint16(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return uint16(sign | 0x7c00);
    if (magnitude < 0x38800000) {  // result is subnormal: adding 0.5 aligns and rounds the mantissa
        float aligned = float_of(magnitude) + 0.5f;
        return uint16(sign | (bits_of(aligned) - bits_of(0.5f)));
    }
    uint32 rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return uint16(sign | ((rounded - 0x38000000) >> 13));
}
#endif

// store: sum to element, rounded to nearest even.
HF_DEVICE void put(fp32& element, float value) { element = value; }
HF_DEVICE void put(fp64& element, double value) { element = value; }
HF_DEVICE void put(fp16& element, float value) { element.bits = half_bits(value); }
#if defined(HF_CUDA) && __CUDA_ARCH__ >= 900
HF_DEVICE void put(bf16& element, float value) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(element.bits) : "f"(value)); }
#else
HF_DEVICE void put(bf16& element, float value) {
    uint32 bits = bits_of(value);
    uint32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    element.bits = uint16(is_nan ? (bits >> 16) | 0x40 : rounded);
}
#endif
template <typename Element, typename Sum>
HF_DEVICE Element store(Sum value) {
    Element element;
    put(element, value);
    return element;
}

template <typename T>
struct Accumulator {
    typedef float type;
};
template <>
struct Accumulator<fp64> {
    typedef double type;
};

// Adds to memory that other items add to at the same time. In no fixed order, so a sum's last bits vary.
#if defined(HF_CUDA)
template <typename Sum>
HF_DEVICE void add_atomically(Sum* sum, Sum value) {
    atomicAdd(sum, value);
}
#elif defined(HF_HIP)
template <typename Sum>
HF_DEVICE void add_atomically(Sum* sum, Sum value) {
    __hip_atomic_fetch_add(sum, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#else
template <typename Sum>
HF_DEVICE void add_atomically(Sum* sum, Sum value) {
    Sum before, after;
    __atomic_load(sum, &before, __ATOMIC_RELAXED);
    do after = before + value;
    while (!__atomic_compare_exchange(sum, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
#endif

#ifdef ELEM
typedef ELEM elem_t;
typedef Accumulator<elem_t>::type acc_t;
#endif
