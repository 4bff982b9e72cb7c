// Matrix products as BLAS libraries define them, column by column, with plain loops.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "standin.h"

namespace standin {

enum DataType { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14 };
enum ComputeType { COMPUTE_32F = 2, COMPUTE_32F_PEDANTIC = 3, COMPUTE_64F = 7, COMPUTE_64F_PEDANTIC = 8 };

inline size_t item_size(int type) { return type == R_64F ? 8 : type == R_32F ? 4 : 2; }

struct Matrix {
    const void* address;
    int type;
    bool transposed;
    int64_t rows, cols;  // as stored
    int64_t ld, stride;
};

// D = alpha * op(A) op(B) + beta * C, `batch` times. C and D have one shape; the operation belongs to A and B.
struct Product {
    int64_t m, n, k, batch;
    Matrix a, b, c, d;
    double alpha, beta;
    bool in_double;
    int64_t splits;  // parts of the sum over k that are added up afterwards
};

inline float half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    float value;
    if (magnitude >= 0x7c00) {
        const uint32_t special = 0x7f800000 | (magnitude & 0x3ff) << 13;
        memcpy(&value, &special, 4);
    } else {
        const uint32_t scaled = magnitude << 13;
        memcpy(&value, &scaled, 4);
        value *= 0x1p112f;
    }
    uint32_t result;
    memcpy(&result, &value, 4);
    result |= sign;
    memcpy(&value, &result, 4);
    return value;
}

inline uint16_t float_to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
    if (magnitude < 0x38800000) {
        float aligned;
        memcpy(&aligned, &magnitude, 4);
        aligned += 0.5f;
        memcpy(&bits, &aligned, 4);
        return uint16_t(sign | (bits - 0x3f000000));
    }
    return uint16_t(sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13));
}

inline float bfloat_to_float(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

inline uint16_t float_to_bfloat(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline double item(const void* base, int type, int64_t index) {
    switch (type) {
        case R_64F: return static_cast<const double*>(base)[index];
        case R_32F: return static_cast<const float*>(base)[index];
        case R_16F: return half_to_float(static_cast<const uint16_t*>(base)[index]);
        default: return bfloat_to_float(static_cast<const uint16_t*>(base)[index]);
    }
}

inline void put_item(void* base, int type, int64_t index, double value) {
    switch (type) {
        case R_64F: static_cast<double*>(base)[index] = value; break;
        case R_32F: static_cast<float*>(base)[index] = float(value); break;
        case R_16F: static_cast<uint16_t*>(base)[index] = float_to_half(float(value)); break;
        default: static_cast<uint16_t*>(base)[index] = float_to_bfloat(float(value));
    }
}

// op(M) of one batch entry as packed columns [rows of op(M)] each.
template <class Sum>
std::vector<Sum> unpacked(const Matrix& matrix, const char* base, int64_t entry) {
    const int64_t rows = matrix.transposed ? matrix.cols : matrix.rows;
    std::vector<Sum> result(matrix.rows * matrix.cols);
    for (int64_t col = 0; col < matrix.cols; ++col)
        for (int64_t row = 0; row < matrix.rows; ++row) {
            const Sum value = Sum(item(base, matrix.type, entry * matrix.stride + col * matrix.ld + row));
            result[matrix.transposed ? row * rows + col : col * rows + row] = value;
        }
    return result;
}

template <class Sum>
void multiply_entry(const Product& p, const char* a, const char* b, const char* c, char* d, int64_t entry) {
    const std::vector<Sum> left = unpacked<Sum>(p.a, a, entry), right = unpacked<Sum>(p.b, b, entry);
    std::vector<Sum> sums, part;
    for (int64_t col = 0; col < p.n; ++col) {
        sums.assign(p.m, 0);
        for (int64_t split = 0; split < p.splits; ++split) {
            part.assign(p.m, 0);
            for (int64_t l = p.k * split / p.splits; l < p.k * (split + 1) / p.splits; ++l) {
                const Sum factor = right[col * p.k + l];
                const Sum* column = &left[l * p.m];
                for (int64_t row = 0; row < p.m; ++row) part[row] += column[row] * factor;
            }
            for (int64_t row = 0; row < p.m; ++row) sums[row] += part[row];
        }
        for (int64_t row = 0; row < p.m; ++row) {
            Sum value = Sum(p.alpha) * sums[row];
            if (p.beta != 0) value += Sum(p.beta) * Sum(item(c, p.c.type, entry * p.c.stride + col * p.c.ld + row));
            put_item(d, p.d.type, entry * p.d.stride + col * p.d.ld + row, double(value));
        }
    }
}

// The host's view of all of a matrix's batch entries; null when they do not lie in one allocation of the device.
inline char* view_of(const Matrix& matrix, int64_t batch, int device) {
    const int64_t last = (batch - 1) * matrix.stride + (matrix.cols - 1) * matrix.ld + matrix.rows;
    return static_cast<char*>(resolve(matrix.address, size_t(last) * item_size(matrix.type), device));
}

inline int multiply(const Product& p, int device) {
    if (!p.m || !p.n || !p.batch) return 0;
    const bool uses_c = p.beta != 0;
    const char* a = p.k ? view_of(p.a, p.batch, device) : nullptr;
    const char* b = p.k ? view_of(p.b, p.batch, device) : nullptr;
    const char* c = uses_c ? view_of(p.c, p.batch, device) : nullptr;
    char* d = view_of(p.d, p.batch, device);
    if ((p.k && (!a || !b)) || (uses_c && !c) || !d) return hipErrorIllegalAddress;
    return guarded([&] {
        for (int64_t entry = 0; entry < p.batch; ++entry)
            if (p.in_double) multiply_entry<double>(p, a, b, c, d, entry);
            else multiply_entry<float>(p, a, b, c, d, entry);
    });
}

inline bool is_legal(const Matrix& matrix) { return matrix.ld >= matrix.rows && matrix.ld >= 1; }

// The combinations of types that AMD's libraries offer for A and B, C and D, and the sums.
inline bool is_offered(int type, int result, int compute) {
    if (type == R_64F) return result == R_64F && (compute == COMPUTE_64F || compute == COMPUTE_64F_PEDANTIC);
    if (compute != COMPUTE_32F && compute != COMPUTE_32F_PEDANTIC) return false;
    if (type == R_32F) return result == R_32F;
    return (type == R_16F || type == R_16BF) && (result == type || result == R_32F);
}

inline double scalar(const void* value, bool in_double) {
    if (in_double) return *static_cast<const double*>(value);
    return *static_cast<const float*>(value);
}

}  // namespace standin
