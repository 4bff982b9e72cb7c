// Modules and launches. A launch copies its arguments at once and runs later; the pointers among them are checked and
// made usable only while the kernel runs, in a place where a trap becomes an error of the device.
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "code_object.h"
#include "standin.h"

namespace standin {
namespace {

struct Module {
    void* library;
    int device;
    std::vector<struct Function*> functions;
};

struct Function {
    Module* module;
    const Kernel* kernel;
};

thread_local sigjmp_buf recover;
thread_local volatile sig_atomic_t recoverable = 0;

extern "C" void on_trap(int signal) {
    if (recoverable) siglongjmp(recover, signal);
    ::signal(signal, SIG_DFL);  // not ours: happens again, and ends the process
}

// Loads a shared object from memory through a file that is gone afterwards.
void* load(const char* data, size_t bytes) {
    const char* directory = getenv("TMPDIR");
    std::string path = std::string(directory && *directory ? directory : "/tmp") + "/standin-XXXXXX";
    const int file = mkstemp(&path[0]);
    if (file < 0) return nullptr;
    bool written = true;
    for (size_t at = 0; at < bytes && written;) {
        const ssize_t count = write(file, data + at, bytes - at);
        written = count > 0;
        if (written) at += size_t(count);
    }
    close(file);
    void* library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path.c_str());
    return library;
}

int load_module(void** result, const char* image) {
    CodeHeader header;
    memcpy(&header, image, sizeof header);
    const char* code = image + sizeof header;
    if (memcmp(header.magic, CODE_MAGIC, sizeof header.magic)) return hipErrorInvalidImage;
    if (checksum(code, header.bytes) != header.checksum) return hipErrorInvalidImage;
    if (strcmp(header.arch, device_arch())) return hipErrorNoBinaryForGpu;
    void* library = load(code, header.bytes);
    if (!library) return hipErrorInvalidImage;
    *result = new Module{library, current_device(), {}};
    track("module", *result);
    return 0;
}

int unload(void* handle) {
    if (!untrack("module", handle)) return hipErrorInvalidHandle;
    Module* module = static_cast<Module*>(handle);
    drain_device(module->device);
    for (Function* function : module->functions) {
        untrack("function", function);
        delete function;
    }
    dlclose(module->library);
    delete module;
    return 0;
}

int get_function(void** result, void* handle, const char* name) {
    if (!tracked("module", handle)) return hipErrorInvalidHandle;
    Module* module = static_cast<Module*>(handle);
    const auto* kernel = static_cast<const Kernel*>(dlsym(module->library, "standin_kernels"));
    for (; kernel && kernel->name; ++kernel)
        if (!strcmp(kernel->name, name)) {
            module->functions.push_back(new Function{module, kernel});
            *result = module->functions.back();
            track("function", *result);
            return 0;
        }
    return hipErrorNotFound;
}

// Arguments of a launch as one buffer, laid out as the device's calling convention has it.
struct Arguments {
    std::vector<char> bytes;
    std::vector<size_t> offsets;
};

Arguments layout_of(const Kernel& kernel) {
    Arguments result;
    size_t end = 0;
    for (unsigned i = 0; i < kernel.count; ++i) {
        const Argument& argument = kernel.arguments[i];
        end = (end + argument.alignment - 1) / argument.alignment * argument.alignment;
        result.offsets.push_back(end);
        end += argument.size;
    }
    result.bytes.resize(end);
    return result;
}

// The packed buffer of `extra`: pairs of keys and values up to HIP_LAUNCH_PARAM_END.
int unpack(Arguments& arguments, void** extra) {
    const char* buffer = nullptr;
    size_t size = 0;
    for (; *extra != reinterpret_cast<void*>(3); extra += 2) {
        if (*extra == reinterpret_cast<void*>(1)) buffer = static_cast<const char*>(extra[1]);
        else if (*extra == reinterpret_cast<void*>(2)) size = *static_cast<size_t*>(extra[1]);
        else return hipErrorInvalidValue;
    }
    if (size < arguments.bytes.size() || size > (arguments.bytes.size() + 7) / 8 * 8) {
        violation("launch: the packed arguments have %zu bytes, the kernel takes %zu", size, arguments.bytes.size());
        return hipErrorInvalidValue;
    }
    if (size) memcpy(arguments.bytes.data(), buffer, arguments.bytes.size());
    return 0;
}

int run(const Kernel& kernel, Arguments arguments, unsigned grid, unsigned block, int device) {
    std::vector<void*> values, addresses;
    for (unsigned i = 0; i < kernel.count; ++i) {
        char* value = arguments.bytes.data() + arguments.offsets[i];
        values.push_back(value);
        if (!kernel.arguments[i].pointer) continue;
        void* address;
        memcpy(&address, value, sizeof address);
        if (!address) continue;
        void* view = resolve(address, 0, device);
        if (!view) return hipErrorIllegalAddress;
        memcpy(value, &view, sizeof view);
        addresses.push_back(address);
    }
    const int error = guarded([&] { kernel.run(values.data(), grid, block); });
    if (error) return error;
    for (void* address : addresses)
        if (!surroundings_intact(address)) {
            violation("kernel %s wrote beside the allocation at %p", kernel.name, address);
            return hipErrorIllegalAddress;
        }
    return 0;
}

int check_shape(const Kernel& kernel, const unsigned* grid, const unsigned* block, unsigned shared) {
    if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2]) return hipErrorInvalidConfiguration;
    if (uint64_t(grid[0]) * block[0] > UINT32_MAX) return hipErrorInvalidConfiguration;
    if (grid[1] * grid[2] * block[1] * block[2] != 1 || shared) return hipErrorNotSupported;
    return block[0] > kernel.max_block ? int(hipErrorLaunchFailure) : 0;
}

}  // namespace

int guarded(const std::function<void()>& work) {
    constexpr int COUNT = 4;
    struct sigaction action {}, before[COUNT];
    const int signals[COUNT] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    action.sa_handler = on_trap;
    for (int i = 0; i < COUNT; ++i) sigaction(signals[i], &action, &before[i]);
    const int trapped = sigsetjmp(recover, 1);
    recoverable = 1;
    if (!trapped) work();
    recoverable = 0;
    for (int i = 0; i < COUNT; ++i) sigaction(signals[i], &before[i], nullptr);
    if (!trapped) return 0;
    return trapped == SIGSEGV || trapped == SIGBUS ? int(hipErrorIllegalAddress) : int(hipErrorLaunchFailure);
}

}  // namespace standin

using namespace standin;

extern "C" {

int hipModuleLoadData(void** result, const void* image) {
    return hip_call("hipModuleLoadData", [&] {
        const int error = forbidden_in_capture();
        return error ? error : load_module(result, static_cast<const char*>(image));
    });
}

int hipModuleUnload(void* module) {
    return hip_call("hipModuleUnload", [&] { return unload(module); });
}

int hipModuleGetFunction(void** result, void* module, const char* name) {
    return hip_call("hipModuleGetFunction", [&] { return get_function(result, module, name); });
}

int hipModuleLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void* stream_handle, void** values,
                          void** extra) {
    return hip_call("hipModuleLaunchKernel", [&] {
        Stream* stream = find_stream(stream_handle);
        if (!stream || !tracked("function", handle)) return int(hipErrorInvalidHandle);
        const Function& function = *static_cast<Function*>(handle);
        const int device = stream_device(stream);
        if (device != current_device() || device != function.module->device) {
            violation("launch: stream of device %d, module of device %d, current device %d", device,
                      function.module->device, current_device());
            return int(hipErrorInvalidHandle);
        }
        const Kernel& kernel = *function.kernel;
        const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
        int error = check_shape(kernel, grid, block, shared);
        Arguments arguments = layout_of(kernel);
        if (!error && !values == !extra) error = hipErrorInvalidValue;
        if (!error && extra) error = unpack(arguments, extra);
        for (unsigned i = 0; !error && values && i < kernel.count; ++i)
            memcpy(arguments.bytes.data() + arguments.offsets[i], values[i], kernel.arguments[i].size);
        if (error) return error;
        return enqueue(stream, [&kernel, arguments, grid_x, block_x, device] {
            const int fault = count_call("kernel");  // tests make a kernel fail while it runs
            return fault ? fault : run(kernel, arguments, grid_x, block_x, device);
        });
    });
}

}  // extern "C"
