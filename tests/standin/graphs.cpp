// Graphs: work captured from a stream, to be run again as often as one likes.
#include "streams.h"

namespace standin {
namespace {

int instantiate(const char* call, void** result, void* graph) {
    return hip_call(call, [&] {
        if (!tracked("graph", graph)) return int(hipErrorInvalidValue);
        *result = new Graph(*static_cast<Graph*>(graph));
        track("graph exec", *result);
        return 0;
    });
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

int hipStreamBeginCapture(void* handle, int mode) {
    return hip_call("hipStreamBeginCapture", [&] {
        Stream* stream = find_stream(handle);
        if (!stream) return int(hipErrorInvalidHandle);
        if (stream->is_default) return int(hipErrorStreamCaptureUnsupported);
        if (stream->capture) return int(hipErrorIllegalState);
        Graph* graph = new Graph{{}, stream->device};
        stream->capture.reset(new Capture{graph, mode, std::this_thread::get_id()});
        return 0;
    });
}

int hipStreamEndCapture(void* handle, void** result) {
    return hip_call("hipStreamEndCapture", [&] {
        Stream* stream = find_stream(handle);
        if (!stream) return int(hipErrorInvalidHandle);
        if (!stream->capture) return int(hipErrorIllegalState);
        const std::unique_ptr<Capture> capture = std::move(stream->capture);
        const bool wrong_thread = capture->mode != Relaxed && capture->thread != std::this_thread::get_id();
        *result = nullptr;
        if (wrong_thread || !capture->valid) {
            delete capture->graph;
            return int(wrong_thread ? hipErrorStreamCaptureWrongThread : hipErrorStreamCaptureInvalidated);
        }
        *result = capture->graph;
        track("graph", *result);
        return 0;
    });
}

int hipStreamIsCapturing(void* handle, int* status) {
    return hip_call("hipStreamIsCapturing", [&] {
        Stream* stream = find_stream(handle);
        if (!stream) return int(hipErrorInvalidHandle);
        *status = !stream->capture ? 0 : stream->capture->valid ? 1 : 2;
        return 0;
    });
}

int hipGraphInstantiate(void** result, void* graph, void**, char*, size_t) {
    return instantiate("hipGraphInstantiate", result, graph);
}

int hipGraphInstantiateWithFlags(void** result, void* graph, unsigned long long flags) {
    return flags ? remember(hipErrorInvalidValue) : instantiate("hipGraphInstantiateWithFlags", result, graph);
}

int hipGraphLaunch(void* executable, void* handle) {
    return hip_call("hipGraphLaunch", [&] {
        Stream* stream = find_stream(handle);
        if (!stream || !tracked("graph exec", executable)) return int(hipErrorInvalidValue);
        Graph* graph = static_cast<Graph*>(executable);
        if (graph->device != stream->device) return int(hipErrorInvalidValue);
        int error = 0;
        for (size_t i = 0; i < graph->nodes.size() && !error; ++i) error = enqueue(stream, graph->nodes[i]);
        return error;
    });
}

int hipGraphDestroy(void* graph) {
    return hip_call("hipGraphDestroy", [&] {
        if (!untrack("graph", graph)) return int(hipErrorInvalidValue);
        delete static_cast<Graph*>(graph);
        return 0;
    });
}

int hipGraphExecDestroy(void* executable) {
    return hip_call("hipGraphExecDestroy", [&] {
        if (!untrack("graph exec", executable)) return int(hipErrorInvalidValue);
        delete static_cast<Graph*>(executable);
        return 0;
    });
}

}  // extern "C"
