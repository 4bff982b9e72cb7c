// libhiprtc.so: compiles a kernel's text for the host that the tests run on. STANDIN_CXX names the compiler's command,
// words separated by blanks; prelude.h and launch.h lie beside this library.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "code_object.h"
#include "standin.h"

extern char** environ;

namespace {

using namespace standin;
using Words = std::vector<std::string>;

enum Status {
    Success = 0,
    ProgramCreationFailure = 2,
    InvalidInput = 3,
    InvalidProgram = 4,
    InvalidOption = 5,
    Compilation = 6,
    InternalError = 11,
};

struct Program {
    std::string source, name, log, code;
    std::vector<std::pair<std::string, std::string>> headers;  // include name and text
};

// A new folder whose files are gone with it.
struct Folder {
    std::string path;
    std::vector<std::string> files;

    Folder() {
        const char* parent = getenv("TMPDIR");
        path = std::string(parent && *parent ? parent : "/tmp") + "/standin-XXXXXX";
        if (!mkdtemp(&path[0])) path.clear();
    }
    ~Folder() {
        for (const std::string& file : files) unlink(file.c_str());
        rmdir(path.c_str());
    }
    std::string file(const std::string& name) {
        files.push_back(path + "/" + name);
        return files.back();
    }
};

std::string read(const std::string& path) {
    std::string text;
    FILE* file = fopen(path.c_str(), "rb");
    if (!file) return text;
    char part[65536];
    for (size_t count; (count = fread(part, 1, sizeof part, file)) > 0;) text.append(part, count);
    fclose(file);
    return text;
}

void write(const std::string& path, const std::string& text) {
    FILE* file = fopen(path.c_str(), "wb");
    if (!file) return;
    fwrite(text.data(), 1, text.size(), file);
    fclose(file);
}

std::string own_folder() {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&own_folder), &info);
    const std::string path = info.dli_fname;
    return path.substr(0, path.rfind('/'));
}

Words words_of(const std::string& text) {
    Words words;
    size_t begin = 0;
    while ((begin = text.find_first_not_of(' ', begin)) != std::string::npos) {
        const size_t blank = text.find(' ', begin), end = blank < text.size() ? blank : text.size();
        words.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

// Runs the compiler; its messages go to a file. Returns whether it succeeded.
bool run(const Words& arguments, const std::string& messages) {
    const char* command = getenv("STANDIN_CXX");
    Words words = words_of(command ? command : "c++");
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(&word[0]);
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 2, messages.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    pid_t child;
    const int failed = posix_spawnp(&child, pointers[0], &files, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    int status = failed;
    if (!failed) waitpid(child, &status, 0);
    else write(messages, "cannot start " + words[0]);
    return status == 0;
}

// Sorts the options a HIP kernel is compiled with into those for the host's compiler; false for an unknown one.
bool take_options(int count, const char* const* options, Words& words, std::string& arch, std::string& log) {
    for (int i = 0; i < count; ++i) {
        const std::string option = options[i];
        if (option.rfind("--offload-arch=", 0) == 0) {
            arch = option.substr(15, option.find(':') == std::string::npos ? std::string::npos : option.find(':') - 15);
            if (arch.rfind("gfx", 0)) return log = "error: unsupported HIP gpu architecture: " + arch, false;
        } else if (option.rfind("-D", 0) == 0 || option.rfind("-std=", 0) == 0) {
            words.push_back(option);
        } else if (option.rfind("-O", 0) && option.rfind("-f", 0) && option.rfind("-m", 0)) {
            return log = "error: unknown argument: '" + option + "'", false;
        }
    }
    return true;
}

// A table entry for each kernel that a preprocessed text defines: "__attribute__((global)) ... void name(".
std::string kernel_table(const std::string& text) {
    static const std::string global = "__attribute__((global))", limit = "amdgpu_flat_work_group_size(";
    std::string table = "\nextern \"C\" const StandinKernel standin_kernels[] = {\n";
    for (size_t at = text.find(global); at != std::string::npos; at = text.find(global, at + 1)) {
        const size_t begin = text.find("void ", at) + 5, end = text.find('(', begin);
        const std::string attributes = text.substr(at, begin - at);
        const size_t found = attributes.find(limit);
        const std::string block =
            found == std::string::npos ? "1024" : std::to_string(atoi(&attributes[attributes.find(',', found) + 1]));
        table += "STANDIN_KERNEL(" + text.substr(begin, end - begin) + ", " + block + ")\n";
    }
    return table + "{nullptr, 0, 0, nullptr, nullptr}};\n";
}

void replace(std::string& text, const std::string& old, const std::string& by) {
    for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + by.size()))
        text.replace(at, old.size(), by);
}

// A preprocessed text with what launches its kernels. Shared memory becomes variables of a section of their own.
std::string host_text(std::string text) {
    static const std::string limit = "__attribute__((amdgpu_flat_work_group_size(";
    const std::string table = kernel_table(text);
    const bool barriers = text.find("standin_barrier()") != std::string::npos;
    replace(text, "__attribute__((shared))", "__attribute__((section(\"standin_shared\"))) static");
    for (size_t at = text.find(limit); at != std::string::npos; at = text.find(limit))  // clang refuses it on a host
        text.erase(at, text.find(")))", at) + 3 - at);
    const std::string mode = barriers ? "\n#define STANDIN_BARRIERS" : "";
    return text + mode + "\n#include \"" + own_folder() + "/launch.h\"\n" + table;
}

std::string code_object(const std::string& code, const std::string& arch) {
    CodeHeader header{};
    memcpy(header.magic, CODE_MAGIC, sizeof header.magic);
    header.bytes = code.size();
    header.checksum = checksum(code.data(), code.size());
    snprintf(header.arch, sizeof header.arch, "%s", arch.c_str());
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) + code;
}

int compile(Program& program, int count, const char* const* options) {
    Words chosen;
    std::string arch = device_arch();
    if (!take_options(count, options, chosen, arch, program.log)) return InvalidOption;
    Folder folder;
    if (folder.path.empty()) return InternalError;
    for (const auto& header : program.headers) write(folder.file(header.first), header.second);
    const std::string source = folder.file("source.cpp"), text = folder.file("text.cpp"), code = folder.file("code.so");
    const std::string messages = folder.file("log");
    write(source, "#include \"" + own_folder() + "/prelude.h\"\n#line 1 \"" + program.name + "\"\n" + program.source);
    Words words = {"-E", "-xc++", "-I" + folder.path, "-o", text, source};
    words.insert(words.end(), chosen.begin(), chosen.end());
    bool compiled = run(words, messages);
    if (compiled) {
        write(source, host_text(read(text)));
        words = {"-shared", "-fPIC", "-O2", "-g0", "-fno-exceptions", "-fno-rtti", "-U_FORTIFY_SOURCE"};
        // a vector at an address that a GPU would not take ends the process; this machine would not mind
        words.insert(words.end(), {"-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"});
        words.insert(words.end(), {"-Wno-attributes", "-o", code, source});
        words.insert(words.end(), chosen.begin(), chosen.end());
        compiled = run(words, messages);
    }
    program.log = read(messages);
    if (!compiled) return Compilation;
    program.code = code_object(read(code), arch);
    return Success;
}

Program* find(void* handle) { return tracked("program", handle) ? static_cast<Program*>(handle) : nullptr; }

}  // namespace

extern "C" {

const char* hiprtcGetErrorString(int status) {
    static const char* const names[] = {
        "HIPRTC_SUCCESS", "HIPRTC_ERROR_OUT_OF_MEMORY", "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE",
        "HIPRTC_ERROR_INVALID_INPUT", "HIPRTC_ERROR_INVALID_PROGRAM", "HIPRTC_ERROR_INVALID_OPTION",
        "HIPRTC_ERROR_COMPILATION", "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION", "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
        "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID", "HIPRTC_ERROR_INTERNAL_ERROR"};
    return status >= 0 && status <= InternalError ? names[status] : "HIPRTC_ERROR_UNKNOWN";
}

int hiprtcVersion(int* major, int* minor) {
    return plain_call("hiprtcVersion", [&] { return *major = 7, *minor = 15, int(Success); });
}

int hiprtcCreateProgram(void** result, const char* source, const char* name, int count, const char* const* headers,
                        const char* const* include_names) {
    return plain_call("hiprtcCreateProgram", [&] {
        if (!source || count < 0) return int(InvalidInput);
        auto* program = new Program{source, name ? name : "program.hip", "", "", {}};
        for (int i = 0; i < count; ++i) program->headers.emplace_back(include_names[i], headers[i]);
        *result = program;
        track("program", program);
        return int(Success);
    });
}

int hiprtcDestroyProgram(void** handle) {
    return plain_call("hiprtcDestroyProgram", [&] {
        if (!untrack("program", *handle)) return int(InvalidProgram);
        delete static_cast<Program*>(*handle);
        *handle = nullptr;
        return int(Success);
    });
}

int hiprtcCompileProgram(void* handle, int count, const char* const* options) {
    return plain_call("hiprtcCompileProgram", [&] {
        Program* program = find(handle);
        return program ? compile(*program, count, options) : int(InvalidProgram);
    });
}

// Sizes of logs include the final zero.
int hiprtcGetProgramLogSize(void* handle, size_t* size) {
    return plain_call("hiprtcGetProgramLogSize", [&] {
        const Program* program = find(handle);
        if (!program) return int(InvalidProgram);
        return *size = program->log.size() + 1, int(Success);
    });
}

int hiprtcGetProgramLog(void* handle, char* log) {
    return plain_call("hiprtcGetProgramLog", [&] {
        const Program* program = find(handle);
        if (!program) return int(InvalidProgram);
        memcpy(log, program->log.c_str(), program->log.size() + 1);
        return int(Success);
    });
}

int hiprtcGetCodeSize(void* handle, size_t* size) {
    return plain_call("hiprtcGetCodeSize", [&] {
        const Program* program = find(handle);
        if (!program || program->code.empty()) return int(InvalidProgram);
        return *size = program->code.size(), int(Success);
    });
}

int hiprtcGetCode(void* handle, char* code) {
    return plain_call("hiprtcGetCode", [&] {
        const Program* program = find(handle);
        if (!program || program->code.empty()) return int(InvalidProgram);
        memcpy(code, program->code.data(), program->code.size());
        return int(Success);
    });
}

}  // extern "C"
