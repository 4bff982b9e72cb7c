// libhipblas.so: handles and GemmEx with its strided-batched form, in 32 and 64 bit sizes.
#include "gemm.h"

namespace {

using namespace standin;

enum Status {
    Success = 0,
    NotInitialized = 1,
    InvalidValue = 3,
    NotSupported = 7,
    InvalidEnum = 10,
};

struct Handle {
    int device;
    void* stream = nullptr;
};

struct Call {
    void* handle;
    int op_a, op_b;
    int64_t m, n, k;
    const void *alpha, *a;
    int a_type;
    int64_t lda, stride_a;
    const void* b;
    int b_type;
    int64_t ldb, stride_b;
    const void *beta, *c;
    int c_type;
    int64_t ldc, stride_c, batch;
    int compute;
};

int gemm(const char* name, const Call& call) {
    return plain_call(name, [&] {
        if (!tracked("blas", call.handle)) return int(NotInitialized);
        const Handle& handle = *static_cast<Handle*>(call.handle);
        if (call.op_a < 111 || call.op_a > 113 || call.op_b < 111 || call.op_b > 113) return int(InvalidEnum);
        if (call.m < 0 || call.n < 0 || call.k < 0 || call.batch < 0) return int(InvalidValue);
        if (call.a_type != call.b_type || !is_offered(call.a_type, call.c_type, call.compute)) return int(NotSupported);
        const bool ta = call.op_a != 111, tb = call.op_b != 111, in_double = call.a_type == R_64F;
        const Matrix a{call.a, call.a_type, ta, ta ? call.k : call.m, ta ? call.m : call.k, call.lda, call.stride_a};
        const Matrix b{call.b, call.b_type, tb, tb ? call.n : call.k, tb ? call.k : call.n, call.ldb, call.stride_b};
        const Matrix c{call.c, call.c_type, false, call.m, call.n, call.ldc, call.stride_c};
        if (!is_legal(a) || !is_legal(b) || !is_legal(c)) return int(InvalidValue);
        const Product product{call.m, call.n, call.k, call.batch, a, b, c, c, scalar(call.alpha, in_double),
                              scalar(call.beta, in_double), in_double, 1};
        Stream* stream = find_stream(handle.stream);
        if (!stream) return int(InvalidValue);
        const int device = stream_device(stream);
        if (device != handle.device || device != current_device()) {
            violation("%s: stream of device %d, handle of device %d, current device %d", name, device, handle.device,
                      current_device());
            return int(InvalidValue);
        }
        return enqueue(stream, [product, device] { return multiply(product, device); }) ? int(InvalidValue) : 0;
    });
}

}  // namespace

extern "C" {

const char* hipblasStatusToString(int status) {
    static const char* const names[] = {
        "HIPBLAS_STATUS_SUCCESS",          "HIPBLAS_STATUS_NOT_INITIALIZED",  "HIPBLAS_STATUS_ALLOC_FAILED",
        "HIPBLAS_STATUS_INVALID_VALUE",    "HIPBLAS_STATUS_MAPPING_ERROR",    "HIPBLAS_STATUS_EXECUTION_FAILED",
        "HIPBLAS_STATUS_INTERNAL_ERROR",   "HIPBLAS_STATUS_NOT_SUPPORTED",    "HIPBLAS_STATUS_ARCH_MISMATCH",
        "HIPBLAS_STATUS_HANDLE_IS_NULLPTR", "HIPBLAS_STATUS_INVALID_ENUM",    "HIPBLAS_STATUS_UNKNOWN"};
    return names[status >= 0 && status < 11 ? status : 11];
}

int hipblasCreate(void** result) {
    return plain_call("hipblasCreate", [&] {
        if (!device_count()) return int(NotInitialized);
        *result = new Handle{current_device()};
        track("blas", *result);
        return int(Success);
    });
}

int hipblasDestroy(void* handle) {
    return plain_call("hipblasDestroy", [&] {
        if (!untrack("blas", handle)) return int(NotInitialized);
        delete static_cast<Handle*>(handle);
        return int(Success);
    });
}

int hipblasSetStream(void* handle, void* stream) {
    return plain_call("hipblasSetStream", [&] {
        if (!tracked("blas", handle)) return int(NotInitialized);
        if (!find_stream(stream)) return int(InvalidValue);
        static_cast<Handle*>(handle)->stream = stream;
        return int(Success);
    });
}

int hipblasGetStream(void* handle, void** stream) {
    return plain_call("hipblasGetStream", [&] {
        if (!tracked("blas", handle)) return int(NotInitialized);
        *stream = static_cast<Handle*>(handle)->stream;
        return int(Success);
    });
}

int hipblasGemmEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int a_type,
                  int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc,
                  int compute, int) {
    return gemm("hipblasGemmEx", {handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
                                  c_type, ldc, 0, 1, compute});
}

int hipblasGemmEx_64(void* handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void* alpha,
                     const void* a, int a_type, int64_t lda, const void* b, int b_type, int64_t ldb, const void* beta,
                     void* c, int c_type, int64_t ldc, int compute, int) {
    return gemm("hipblasGemmEx_64", {handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
                                     c_type, ldc, 0, 1, compute});
}

int hipblasGemmStridedBatchedEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha,
                                const void* a, int a_type, int lda, int64_t stride_a, const void* b, int b_type,
                                int ldb, int64_t stride_b, const void* beta, void* c, int c_type, int ldc,
                                int64_t stride_c, int batch, int compute, int) {
    return gemm("hipblasGemmStridedBatchedEx",
                {handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b, beta, c,
                 c_type, ldc, stride_c, batch, compute});
}

int hipblasGemmStridedBatchedEx_64(void* handle, int op_a, int op_b, int64_t m, int64_t n, int64_t k,
                                   const void* alpha, const void* a, int a_type, int64_t lda, int64_t stride_a,
                                   const void* b, int b_type, int64_t ldb, int64_t stride_b, const void* beta, void* c,
                                   int c_type, int64_t ldc, int64_t stride_c, int64_t batch, int compute, int) {
    return gemm("hipblasGemmStridedBatchedEx_64",
                {handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b, beta, c,
                 c_type, ldc, stride_c, batch, compute});
}

}  // extern "C"
