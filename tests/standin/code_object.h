// The "code object" that the stand-in's compiler writes and its runtime loads: this header, then a shared object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace standin {

constexpr char CODE_MAGIC[8] = {'H', 'F', 'S', 'T', 'A', 'N', 'D', '1'};

struct CodeHeader {
    char magic[8];
    uint64_t bytes, checksum;  // of the shared object
    char arch[32];
};

inline uint64_t checksum(const char* data, size_t bytes) {
    uint64_t sum = 14695981039346656037u;  // FNV-1a, on words for speed
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        sum = (sum ^ word) * 1099511628211u;
    }
    for (size_t i = bytes / 8 * 8; i < bytes; ++i) sum = (sum ^ (unsigned char)data[i]) * 1099511628211u;
    return sum;
}

// The layouts of launch.h.
struct Argument {
    unsigned size, alignment;
    bool pointer;
};

struct Kernel {
    const char* name;
    unsigned max_block, count;
    const Argument* arguments;
    void (*run)(void** arguments, unsigned grid, unsigned block);
};

}  // namespace standin
