// libhipblaslt.so: descriptions of products, algorithms to choose from (some want workspace), and the product itself.
#include "gemm.h"

namespace {

using namespace standin;

enum Status {
    Success = 0,
    NotInitialized = 1,
    InvalidValue = 3,
    ExecutionFailed = 5,
    NotSupported = 7,
};

struct Layout {
    int type;
    int64_t rows, cols, ld;
    int batch = 1;
    int64_t stride = 0;
};

struct Description {
    int compute, scale_type;
    int op_a = 111, op_b = 111;
};

struct Preference {
    uint64_t workspace = 0;
};

// As hipblaslt.h has them.
struct Algorithm {
    uint8_t data[16];
    size_t max_workspace;
};

struct Result {
    Algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

constexpr int ALGORITHMS = 4;
constexpr uint8_t ALGORITHM_MARK = 0x5A;  // in data[15]: this library made it

// Algorithm i splits the sum over k in 1, 1, 2 or 4 parts; every part beyond the first needs the result in workspace.
int64_t splits_of(int algorithm) { return algorithm < 2 ? 1 : algorithm == 2 ? 2 : 4; }

size_t workspace_of(int algorithm, const Layout& d) {
    return size_t(splits_of(algorithm) - 1) * size_t(d.rows * d.cols * d.batch) * 4;
}

template <class T>
T* find(const char* kind, const void* object) {
    if (tracked(kind, object)) return static_cast<T*>(const_cast<void*>(object));
    violation("%s %p is not alive", kind, object);
    return nullptr;
}

template <class T>
int destroy(const char* call, const char* kind, const void* object) {
    return plain_call(call, [&] {
        if (!untrack(kind, object)) return int(InvalidValue);
        delete static_cast<T*>(const_cast<void*>(object));
        return int(Success);
    });
}

template <class T>
int take(T& value, const void* buffer, size_t size) {
    if (!buffer || size != sizeof(T)) return InvalidValue;
    memcpy(&value, buffer, size);
    return Success;
}

Matrix matrix(const void* address, const Layout& layout, int op) {
    return {address, layout.type, op != 111, layout.rows, layout.cols, layout.ld, layout.stride};
}

// The product that the descriptions spell; its addresses come later. Returns a status.
int describe(const Description& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
             Product& result) {
    const bool ta = product.op_a != 111, tb = product.op_b != 111;
    const int64_t k = ta ? a.rows : a.cols;
    if ((ta ? a.cols : a.rows) != d.rows || (tb ? b.rows : b.cols) != d.cols || (tb ? b.cols : b.rows) != k)
        return InvalidValue;
    if (c.rows != d.rows || c.cols != d.cols || a.batch != d.batch || b.batch != d.batch || c.batch != d.batch)
        return InvalidValue;
    const int scale = a.type == R_64F ? R_64F : R_32F;
    if (a.type != b.type || c.type != d.type || product.scale_type != scale) return NotSupported;
    if (!is_offered(a.type, d.type, product.compute)) return NotSupported;
    result = {d.rows, d.cols, k, d.batch, matrix(nullptr, a, product.op_a), matrix(nullptr, b, product.op_b),
              matrix(nullptr, c, 111), matrix(nullptr, d, 111), 0, 0, a.type == R_64F, 1};
    const bool legal = is_legal(result.a) && is_legal(result.b) && is_legal(result.c) && is_legal(result.d);
    return legal ? Success : InvalidValue;
}

struct Handle {
    int device;
};

}  // namespace

extern "C" {

int hipblasLtCreate(void** result) {
    return plain_call("hipblasLtCreate", [&] {
        if (!device_count()) return int(NotInitialized);
        *result = new Handle{current_device()};
        track("blaslt", *result);
        return int(Success);
    });
}

int hipblasLtDestroy(const void* handle) { return destroy<Handle>("hipblasLtDestroy", "blaslt", handle); }

int hipblasLtGetVersion(void* handle, int* version) {
    return plain_call("hipblasLtGetVersion", [&] {
        if (!find<Handle>("blaslt", handle)) return int(NotInitialized);
        return *version = 100200, int(Success);
    });
}

int hipblasLtMatrixLayoutCreate(void** result, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    return plain_call("hipblasLtMatrixLayoutCreate", [&] {
        *result = new Layout{type, int64_t(rows), int64_t(cols), ld};
        track("layout", *result);
        return int(Success);
    });
}

int hipblasLtMatrixLayoutDestroy(const void* layout) {
    return destroy<Layout>("hipblasLtMatrixLayoutDestroy", "layout", layout);
}

int hipblasLtMatrixLayoutSetAttribute(void* handle, int attribute, const void* buffer, size_t size) {
    return plain_call("hipblasLtMatrixLayoutSetAttribute", [&] {
        Layout* layout = find<Layout>("layout", handle);
        if (!layout) return int(InvalidValue);
        if (attribute == 0) return take(layout->batch, buffer, size);
        if (attribute == 1) return take(layout->stride, buffer, size);
        return int(NotSupported);
    });
}

int hipblasLtMatmulDescCreate(void** result, int compute, int scale_type) {
    return plain_call("hipblasLtMatmulDescCreate", [&] {
        *result = new Description{compute, scale_type};
        track("matmul description", *result);
        return int(Success);
    });
}

int hipblasLtMatmulDescDestroy(const void* description) {
    return destroy<Description>("hipblasLtMatmulDescDestroy", "matmul description", description);
}

int hipblasLtMatmulDescSetAttribute(void* handle, int attribute, const void* buffer, size_t size) {
    return plain_call("hipblasLtMatmulDescSetAttribute", [&] {
        Description* description = find<Description>("matmul description", handle);
        if (!description) return int(InvalidValue);
        if (attribute == 0) return take(description->op_a, buffer, size);
        if (attribute == 1) return take(description->op_b, buffer, size);
        return int(NotSupported);
    });
}

int hipblasLtMatmulPreferenceCreate(void** result) {
    return plain_call("hipblasLtMatmulPreferenceCreate", [&] {
        *result = new Preference;
        track("preference", *result);
        return int(Success);
    });
}

int hipblasLtMatmulPreferenceDestroy(const void* preference) {
    return destroy<Preference>("hipblasLtMatmulPreferenceDestroy", "preference", preference);
}

int hipblasLtMatmulPreferenceSetAttribute(void* handle, int attribute, const void* buffer, size_t size) {
    return plain_call("hipblasLtMatmulPreferenceSetAttribute", [&] {
        Preference* preference = find<Preference>("preference", handle);
        if (!preference) return int(InvalidValue);
        return attribute == 1 ? take(preference->workspace, buffer, size) : int(NotSupported);
    });
}

int hipblasLtMatmulAlgoGetHeuristic(void* handle, void* description, void* a, void* b, void* c, void* d,
                                    void* preference_handle, int wanted, Result* results, int* count) {
    return plain_call("hipblasLtMatmulAlgoGetHeuristic", [&] {
        *count = 0;
        const auto* operation = find<Description>("matmul description", description);
        const Layout *la = find<Layout>("layout", a), *lb = find<Layout>("layout", b);
        const Layout *lc = find<Layout>("layout", c), *ld = find<Layout>("layout", d);
        const auto* preference = find<Preference>("preference", preference_handle);
        if (!find<Handle>("blaslt", handle)) return int(NotInitialized);
        if (!operation || !la || !lb || !lc || !ld || !preference || wanted < 1) return int(InvalidValue);
        Product product;
        const int status = describe(*operation, *la, *lb, *lc, *ld, product);
        if (status) return status;
        // By falling workspace, so that a small limit takes away the first ones.
        for (int i = ALGORITHMS - 1; i >= 0 && *count < wanted; --i) {
            const size_t workspace = workspace_of(i, *ld);
            if (workspace > preference->workspace) continue;
            Result& result = results[(*count)++];
            memset(&result, 0, sizeof result);
            result.algorithm.data[0] = uint8_t(i);
            result.algorithm.data[15] = ALGORITHM_MARK;
            result.algorithm.max_workspace = preference->workspace;
            result.workspace = workspace;
            result.waves = 1;
        }
        return *count ? int(Success) : int(NotSupported);
    });
}

int hipblasLtMatmul(void* handle, void* description, const void* alpha, const void* a, void* a_layout, const void* b,
                    void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                    const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream_handle) {
    return plain_call("hipblasLtMatmul", [&] {
        const Handle* owner = find<Handle>("blaslt", handle);
        const auto* operation = find<Description>("matmul description", description);
        const Layout *la = find<Layout>("layout", a_layout), *lb = find<Layout>("layout", b_layout);
        const Layout *lc = find<Layout>("layout", c_layout), *ld = find<Layout>("layout", d_layout);
        Stream* stream = find_stream(stream_handle);
        if (!owner) return int(NotInitialized);
        if (!operation || !la || !lb || !lc || !ld || !stream) return int(InvalidValue);
        Product product;
        const int status = describe(*operation, *la, *lb, *lc, *ld, product);
        if (status) return status;
        const int device = stream_device(stream);
        if (device != owner->device || device != current_device()) {
            violation("hipblasLtMatmul: stream of device %d, handle of device %d, current device %d", device,
                      owner->device, current_device());
            return int(InvalidValue);
        }
        if (algorithm && algorithm->data[15] != ALGORITHM_MARK) return int(InvalidValue);
        const int chosen = algorithm ? algorithm->data[0] : 0;
        const size_t needed = workspace_of(chosen, *ld);
        if (needed > workspace_bytes) return int(InvalidValue);
        product.a.address = a, product.b.address = b, product.c.address = c, product.d.address = d;
        product.alpha = scalar(alpha, product.in_double), product.beta = scalar(beta, product.in_double);
        product.splits = splits_of(chosen);
        const int error = enqueue(stream, [product, device, workspace, needed] {
            if (needed) {
                void* view = resolve(workspace, needed, device);
                if (!view) return int(hipErrorIllegalAddress);
                memset(view, 0xFF, needed);  // whatever was in it is lost
            }
            return multiply(product, device);
        });
        return error ? int(ExecutionFailed) : int(Success);
    });
}

}  // extern "C"
