// Device memory in host memory. An allocation lies between wide gaps that trap; its bytes start as NaN, the slack beside it
// holds a pattern that must survive. A device address is the host's plus a tag that makes it useless to the host. Freed
// addresses trap for as long as possible.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "standin.h"

namespace standin {

size_t device_memory();

namespace {

constexpr uintptr_t TAG = uintptr_t(1) << 52;
constexpr size_t PAGE = 4096, GAP = 256 << 20, ALIGNMENT = 256, RETIRED = 2048, POISONED = 64 << 20;
constexpr unsigned char POISON = 0xFF, SLACK = 0xCB;  // 0xFF...: NaN in every float type

struct Block {
    uintptr_t begin;
    size_t size;
    int device;
    char* map;
    size_t map_bytes;
};

struct Memory {
    std::map<uintptr_t, Block> blocks;  // by first byte as the host sees it
    std::deque<Block> retired;          // kept inaccessible, so that use after free traps
    std::map<int, size_t> used;
};

Memory& memory() {
    static Memory* instance = new Memory;
    return *instance;
}

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

const Block* block_of(uintptr_t address) {
    auto next = memory().blocks.upper_bound(address);
    if (next == memory().blocks.begin()) return nullptr;
    const Block& block = std::prev(next)->second;
    return address <= block.begin + block.size ? &block : nullptr;
}

int allocate(void** result, size_t size) {
    if (!result) return hipErrorInvalidValue;
    *result = nullptr;
    if (!size) return 0;
    const size_t data = round_up(size, PAGE);
    if (size > device_memory() - memory().used[current_device()]) return hipErrorOutOfMemory;
    char* map = static_cast<char*>(
        mmap(nullptr, data + 2 * GAP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (map == MAP_FAILED) return hipErrorOutOfMemory;
    mprotect(map + GAP, data, PROT_READ | PROT_WRITE);
    char* end = map + GAP + data;
    char* begin = end - round_up(size, ALIGNMENT);
    memset(map + GAP, SLACK, begin - map - GAP);
    memset(begin + size, SLACK, end - begin - size);
    memset(begin, POISON, size < POISONED ? size : POISONED);
    const Block block{uintptr_t(begin), size, current_device(), map, data + 2 * GAP};
    memory().blocks[block.begin] = block;
    memory().used[block.device] += size;
    *result = reinterpret_cast<void*>(block.begin + TAG);
    track("memory", *result);
    return 0;
}

bool intact(const Block& block) {
    const unsigned char* begin = reinterpret_cast<const unsigned char*>(block.begin);
    const unsigned char* end = reinterpret_cast<unsigned char*>(block.map) + block.map_bytes - GAP;
    for (auto byte = reinterpret_cast<unsigned char*>(block.map) + GAP; byte < begin; ++byte)
        if (*byte != SLACK) return false;
    for (auto byte = begin + block.size; byte < end; ++byte)
        if (*byte != SLACK) return false;
    return true;
}

int release(void* address) {
    if (!address) return 0;
    const auto found = memory().blocks.find(uintptr_t(address) - TAG);
    if (found == memory().blocks.end()) {
        violation("hipFree(%p): not an address that hipMalloc gave, or freed before", address);
        return hipErrorInvalidValue;
    }
    const Block block = found->second;
    drain_device(block.device);  // hipFree waits for the device
    if (!intact(block)) violation("memory beside %p (%zu bytes) was overwritten", address, block.size);
    untrack("memory", address);
    memory().used[block.device] -= block.size;
    memory().blocks.erase(found);
    madvise(block.map + GAP, block.map_bytes - 2 * GAP, MADV_DONTNEED);
    mprotect(block.map, block.map_bytes, PROT_NONE);
    memory().retired.push_back(block);
    if (memory().retired.size() > RETIRED) {
        munmap(memory().retired.front().map, memory().retired.front().map_bytes);
        memory().retired.pop_front();
    }
    return 0;
}

// The device side of a copy's end: the host's view, or null with a reason noted.
void* operand(const void* address, size_t bytes, bool on_device, const char* call) {
    if (on_device != is_device_address(address)) {
        violation("%s: %p is %s address", call, address, on_device ? "not a device" : "a device");
        return nullptr;
    }
    if (!on_device) return const_cast<void*>(address);
    const Block* block = block_of(uintptr_t(address) - TAG);
    void* view = block ? resolve(address, bytes, block->device) : nullptr;
    if (!view) violation("%s: %zu bytes at %p are not in one allocation", call, bytes, address);
    return view;
}

enum Kind { HostToHost, HostToDevice, DeviceToHost, DeviceToDevice, Default };

int copy(void* to, const void* from, size_t bytes, int kind, Stream* stream, const char* call) {
    if (!bytes) return 0;
    if (kind < HostToHost || kind > Default) return hipErrorInvalidValue;
    const bool to_device = kind == Default ? is_device_address(to) : kind == HostToDevice || kind == DeviceToDevice;
    const bool from_device = kind == Default ? is_device_address(from) : kind == DeviceToHost || kind == DeviceToDevice;
    void* target = operand(to, bytes, to_device, call);
    void* source = operand(from, bytes, from_device, call);
    if (!target || !source) return hipErrorInvalidValue;
    return enqueue(stream, [=] { return guarded([=] { memmove(target, source, bytes); }); });
}

int set(void* to, int value, size_t bytes, Stream* stream, const char* call) {
    if (!bytes) return 0;
    void* target = operand(to, bytes, true, call);
    if (!target) return hipErrorInvalidValue;
    return enqueue(stream, [=] { return guarded([=] { memset(target, value, bytes); }); });
}

// A call that the host waits for, on the default stream.
int waited(int error) {
    if (error) return error;
    drain(find_stream(nullptr));
    return device_error(current_device());
}

}  // namespace

bool is_device_address(const void* address) { return uintptr_t(address) & TAG; }

void* resolve(const void* address, size_t bytes, int device) {
    if (!is_device_address(address)) return nullptr;
    const uintptr_t begin = uintptr_t(address) - TAG;
    const Block* block = block_of(begin);
    if (!block || block->device != device || bytes > block->begin + block->size - begin) return nullptr;
    return reinterpret_cast<void*>(begin);
}

bool surroundings_intact(const void* address) {
    const Block* block = block_of(uintptr_t(address) - TAG);
    return !block || intact(*block);
}

}  // namespace standin

using namespace standin;

extern "C" {

int hipMalloc(void** address, size_t size) {
    return hip_call("hipMalloc", [&] {
        const int error = forbidden_in_capture();
        return error ? error : allocate(address, size);
    });
}

int hipFree(void* address) {
    return hip_call("hipFree", [&] {
        const int error = forbidden_in_capture();
        return error ? error : release(address);
    });
}

int hipHostMalloc(void** address, size_t size, unsigned) {
    return hip_call("hipHostMalloc", [&] {
        *address = malloc(size);
        track("host memory", *address);
        return 0;
    });
}

int hipHostFree(void* address) {
    return hip_call("hipHostFree", [&] {
        if (!address) return 0;
        if (!untrack("host memory", address)) return int(hipErrorInvalidValue);
        drain_device(current_device());
        free(address);
        return 0;
    });
}

int hipMemGetInfo(size_t* free_bytes, size_t* total) {
    return hip_call("hipMemGetInfo", [&] {
        *total = device_memory();
        *free_bytes = *total - memory().used[current_device()];
        return 0;
    });
}

int hipMemcpy(void* to, const void* from, size_t bytes, int kind) {
    return hip_call("hipMemcpy", [&] {
        const int error = forbidden_in_capture();
        return error ? error : waited(copy(to, from, bytes, kind, find_stream(nullptr), "hipMemcpy"));
    });
}

int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
    return hip_call("hipMemcpyAsync", [&] {
        Stream* queue = find_stream(stream);
        return queue ? copy(to, from, bytes, kind, queue, "hipMemcpyAsync") : int(hipErrorInvalidHandle);
    });
}

int hipMemset(void* to, int value, size_t bytes) {
    return hip_call("hipMemset", [&] {
        const int error = forbidden_in_capture();
        return error ? error : set(to, value, bytes, find_stream(nullptr), "hipMemset");
    });
}

int hipMemsetAsync(void* to, int value, size_t bytes, void* stream) {
    return hip_call("hipMemsetAsync", [&] {
        Stream* queue = find_stream(stream);
        return queue ? set(to, value, bytes, queue, "hipMemsetAsync") : int(hipErrorInvalidHandle);
    });
}

struct PointerAttributes {
    int type, device;
    void *device_pointer, *host_pointer;
    int managed;
    unsigned flags;
};

int hipPointerGetAttributes(PointerAttributes* result, const void* address) {
    return hip_call("hipPointerGetAttributes", [&] {
        const Block* block = is_device_address(address) ? block_of(uintptr_t(address) - TAG) : nullptr;
        if (!block) return int(hipErrorInvalidValue);
        *result = {2, block->device, const_cast<void*>(address), nullptr, 0, 0};  // 2: hipMemoryTypeDevice
        return 0;
    });
}

}  // extern "C"
