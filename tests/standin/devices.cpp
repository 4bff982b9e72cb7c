// Devices: how many, which one is current, their properties. STANDIN_DEVICES, STANDIN_ARCH and STANDIN_MEMORY (bytes a
// device) in the environment say what there is.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "standin.h"

namespace standin {
namespace {

thread_local int current = 0;

std::string setting(const char* name, const char* fallback) {
    const char* value = getenv(name);
    return value && *value ? value : fallback;
}

std::map<int, int>& failed() {
    static std::map<int, int>* instance = new std::map<int, int>;
    return *instance;
}

// hipDeviceProp_tR0600 as AMD's hip_runtime_api.h lays it out.
struct Properties {
    char name[256];
    char uuid[16];
    char luid[8];
    unsigned luidDeviceNodeMask;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment, texturePitchAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
    int textures[26];  // maxTexture1D to maxTextureCubemapLayered
    int surfaces[14];  // maxSurface1D to maxSurfaceCubemapLayered
    size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
    int unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
    int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
    int canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
    int accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported, sparseHipArraySupported, hostRegisterReadOnlySupported;
    int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
    unsigned gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned memoryPoolSupportedHandleTypes;
    int deferredMappingHipArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers;
    int reserved[63], hipReserved[32];
    char gcnArchName[256];
    size_t maxSharedMemoryPerMultiProcessor;
    int clockInstructionRate;
    unsigned arch;
    unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
    int cooperativeMultiDeviceUnmatched[4], isLargeBar, asicRevision;
};

struct Attribute {
    int key, value;
};

}  // namespace

int device_count() {
    static const int count = atoi(setting("STANDIN_DEVICES", "1").c_str());
    return count;
}

const char* device_arch() {
    static const std::string* arch = new std::string(setting("STANDIN_ARCH", "gfx942"));
    return arch->c_str();
}

size_t device_memory() {
    static const size_t bytes = strtoull(setting("STANDIN_MEMORY", "2147483648").c_str(), nullptr, 10);
    return bytes;
}

int current_device() { return current; }

int device_error(int device) {
    const auto found = failed().find(device);
    return found == failed().end() ? 0 : found->second;
}

void set_device_error(int device, int error) { failed().emplace(device, error); }

}  // namespace standin

using namespace standin;

extern "C" {

int hipInit(unsigned) {
    return hip_call("hipInit", [] { return 0; });
}

int hipGetDeviceCount(int* count) {
    return remember(plain_call("hipGetDeviceCount", [&] {
        *count = device_count();
        return *count ? 0 : hipErrorNoDevice;
    }));
}

int hipGetDevice(int* device) {
    return remember(plain_call("hipGetDevice", [&] {
        *device = current;
        return device_count() ? 0 : hipErrorNoDevice;
    }));
}

int hipSetDevice(int device) {
    return remember(plain_call("hipSetDevice", [&] {
        if (!device_count()) return int(hipErrorNoDevice);
        if (device < 0 || device >= device_count()) return int(hipErrorInvalidDevice);
        current = device;
        return 0;
    }));
}

int hipRuntimeGetVersion(int* version) {
    return hip_call("hipRuntimeGetVersion", [&] { return *version = 71526333, 0; });
}

int hipDriverGetVersion(int* version) {
    return hip_call("hipDriverGetVersion", [&] { return *version = 71526333, 0; });
}

int hipGetDevicePropertiesR0600(Properties* p, int device) {
    return hip_call("hipGetDeviceProperties", [&] {
        if (device < 0 || device >= device_count()) return int(hipErrorInvalidDevice);
        const std::string arch = device_arch();
        const bool cdna = arch.rfind("gfx9", 0) == 0;
        memset(p, 0, sizeof *p);
        snprintf(p->name, sizeof p->name, "HIP stand-in %d", device);
        snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s%s", arch.c_str(), cdna ? ":sramecc+:xnack-" : "");
        memset(p->uuid, 'a' + device, sizeof p->uuid);
        p->totalGlobalMem = device_memory();
        p->sharedMemPerBlock = p->sharedMemPerMultiprocessor = p->maxSharedMemoryPerMultiProcessor = 65536;
        p->warpSize = cdna ? 64 : 32;
        p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = p->maxThreadsDim[2] = 1024;
        p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65536;
        p->clockRate = 2100000, p->memoryClockRate = 1300000, p->memoryBusWidth = 8192;
        p->multiProcessorCount = 304, p->l2CacheSize = 4 << 20, p->maxThreadsPerMultiProcessor = 2048;
        p->regsPerBlock = p->regsPerMultiprocessor = 65536;
        p->major = 9, p->minor = 4;
        p->pciBusID = 1 + device;
        p->concurrentKernels = p->unifiedAddressing = p->memoryPoolsSupported = 1;
        return 0;
    });
}

int hipDeviceGetAttribute(int* value, int attribute, int device) {
    return hip_call("hipDeviceGetAttribute", [&] {
        if (device < 0 || device >= device_count()) return int(hipErrorInvalidDevice);
        const Attribute known[] = {
            {hipDeviceAttributeMultiprocessorCount, 304}, {hipDeviceAttributeClockRate, 2100000},
            {hipDeviceAttributeL2CacheSize, 4 << 20},     {hipDeviceAttributeMaxThreadsPerBlock, 1024},
            {hipDeviceAttributeMaxGridDimX, 2147483647},  {hipDeviceAttributeMaxSharedMemoryPerBlock, 65536},
            {hipDeviceAttributeMemoryClockRate, 1300000}, {hipDeviceAttributeMemoryBusWidth, 8192},
        };
        for (const Attribute& candidate : known)
            if (candidate.key == attribute) return *value = candidate.value, 0;
        return int(hipErrorInvalidValue);
    });
}

// Makes failed devices work again, which nothing can do for real ones.
void standin_revive() {
    std::lock_guard<std::recursive_mutex> lock(mutex());
    failed().clear();
}

size_t standin_properties_size() { return sizeof(Properties); }

}  // extern "C"
