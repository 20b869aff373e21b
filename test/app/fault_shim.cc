// Faults for tests, preloaded into the real program (LD_PRELOAD): it knows nothing of this.
//
//   FAULT_RANK      the rank that suffers, as the launcher numbers it, or "all"
//   FAULT_TRIGGER   a path; nothing happens before a file is there (unset: at once)
//   FAULT_MARK      a path; a file is made there when the fault happens
//   FAULT_ACTION    throw | hold (sleep for two minutes) | delay:SECONDS (once) | exit (_exit(0)) | leave (exit(0)) |
//                   finalize (MPI_Finalize, then exit(0)) | error:NUMBER (the call fails with this errno) |
//                   slow:NUMBER (every such call takes so many milliseconds longer)
//   FAULT_CALL      mpi                starting MPI
//                   new:main           an allocation on the main thread
//                   compute            a layer of oneDNN, on the main thread
//                   reduce             an allocation on the thread that makes the reductions
//                   exchange           sending a part of a sum through MPI
//                   share              making memory that ranks share
//                   send               sending over a socket, by any thread but the main one
//                   open:PART          opening a file whose path contains PART
//                   read:PART          a positioned read of such a file, by any thread but the main one
//                   write:PART, fsync:PART
//                   hangup             handles SIGHUP from the moment that it is loaded, as UCX does
//                   none
//   FAULT_PACE      milliseconds by which a layer of oneDNN takes longer on every rank: steps that other load hardly
//                   changes
//   FAULT_CLOCK     seconds added to the wall clock, from the trigger on
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>

namespace {

const char* variable(const char* name) {
  const char* value = ::getenv(name);
  return value ? value : "";
}

[[gnu::constructor]] void handle_hangup() {
  if (std::strcmp(variable("FAULT_CALL"), "hangup") == 0) ::signal(SIGHUP, [](int) {});
}

bool is_victim() {
  static const bool victim = [] {
    const char* rank = ::getenv("OMPI_COMM_WORLD_RANK");
    return std::strcmp(variable("FAULT_RANK"), "all") == 0 ||
           std::strcmp(variable("FAULT_RANK"), rank ? rank : "0") == 0;
  }();
  return victim;
}

bool triggered() {
  static const char* path = ::getenv("FAULT_TRIGGER");
  static bool seen = false;
  if (!seen) seen = !path || ::syscall(SYS_access, path, F_OK) == 0;
  return seen;
}

bool on_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

bool on_reduction_thread() {
  char name[16] = "";
  ::prctl(PR_GET_NAME, name);
  return std::strcmp(name, "reduction") == 0;
}

void mark() {
  const char* path = ::getenv("FAULT_MARK");
  if (!path) return;
  const long file = ::syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, 0644);
  if (file >= 0) ::syscall(SYS_close, file);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void sleep_ms(long ms) {
  timespec left{ms / 1000, ms % 1000 * 1'000'000};
  while (::nanosleep(&left, &left) != 0) {
  }
}

// Does what FAULT_ACTION says, once; true: the call shall fail, and errno is set.
bool suffer() {
  static bool suffering = false;  // a second thread may come while one is held
  const std::string_view action = variable("FAULT_ACTION");
  if (action.substr(0, 6) == "error:") {
    mark();
    errno = std::atoi(action.data() + 6);
    return true;
  }
  if (action.substr(0, 5) == "slow:") {
    mark();
    sleep_ms(std::atol(action.data() + 5));
    return false;
  }
  if (suffering) return false;
  suffering = true;
  mark();
  if (action == "throw") throw std::runtime_error("a fault made by the test");
  if (action == "exit") ::_exit(0);
  if (action == "finalize") next<int()>("MPI_Finalize")();
  if (action == "finalize" || action == "leave") std::exit(0);
  const int seconds = action == "hold" ? 120 : action.substr(0, 6) == "delay:" ? std::atoi(action.data() + 6) : 0;
  sleep_ms(1000L * seconds);
  return false;
}

// Whether `call` is the one of FAULT_CALL, for a call without a file.
bool meant(const char* call) {
  static const std::string_view wanted = variable("FAULT_CALL");
  return wanted == call && is_victim() && triggered();
}

bool meant(const char* call, const char* path) {
  static const std::string_view wanted = variable("FAULT_CALL");
  const size_t length = std::strlen(call);
  if (wanted.substr(0, length) != call || wanted.size() <= length + 1) return false;
  return is_victim() && std::strstr(path, wanted.data() + length + 1) && triggered();
}

bool meant(const char* call, int descriptor) {
  static const std::string_view wanted = variable("FAULT_CALL");
  if (wanted.substr(0, std::strlen(call)) != call || !is_victim()) return false;
  char link[64], path[4096];
  char* end = link;
  for (const char* c = "/proc/self/fd/"; *c; ++c) *end++ = *c;
  char digits[16];
  int count = 0;
  do digits[count++] = static_cast<char>('0' + descriptor % 10);
  while ((descriptor /= 10) > 0);
  while (count > 0) *end++ = digits[--count];
  *end = '\0';
  const ssize_t got = ::readlink(link, path, sizeof(path) - 1);
  if (got <= 0) return false;
  path[got] = '\0';
  return meant(call, path);
}

}  // namespace

void* operator new(size_t bytes) {
  if (meant("new:main") && on_main_thread()) suffer();
  if (meant("reduce") && on_reduction_thread()) suffer();
  void* memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  static auto* real = next<int(int*, char***, int, int*)>("MPI_Init_thread");
  if (meant("mpi")) suffer();
  return real(argc, argv, required, provided);
}

int memfd_create(const char* name, unsigned flags) noexcept {
  static auto* real = next<int(const char*, unsigned)>("memfd_create");
  if (meant("share") && suffer()) return -1;
  return real(name, flags);
}

int MPI_Isend(const void* from, int count, void* type, int to, int tag, void* comm, void* request) {
  static auto* real = next<decltype(MPI_Isend)>("MPI_Isend");
  if (meant("exchange") && on_reduction_thread()) suffer();
  return real(from, count, type, to, tag, comm, request);
}

int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  static auto* real = next<int(const void*, void*, int, const void*)>("dnnl_primitive_execute");
  static const long pace_ms = std::atol(variable("FAULT_PACE"));
  sleep_ms(pace_ms);
  if (meant("compute") && on_main_thread()) suffer();
  return real(primitive, stream, count, arguments);
}

ssize_t writev(int file, const iovec* parts, int count) {
  static auto* real = next<ssize_t(int, const iovec*, int)>("writev");
  if (meant("send") && !on_main_thread()) suffer();
  return real(file, parts, count);
}

int open(const char* path, int flags, ...) {
  static auto* real = next<int(const char*, int, ...)>("open");
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (meant("open", path) && suffer()) return -1;
  return real(path, flags, mode);
}

ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  static auto* real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  if (meant("read", file) && !on_main_thread() && suffer()) return -1;
  return real(file, to, bytes, offset);
}

ssize_t write(int file, const void* from, size_t bytes) {
  static auto* real = next<ssize_t(int, const void*, size_t)>("write");
  if (meant("write", file) && suffer()) return -1;
  return real(file, from, bytes);
}

int fsync(int file) {
  static auto* real = next<int(int)>("fsync");
  if (meant("fsync", file) && suffer()) return -1;
  return real(file);
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long status = ::syscall(SYS_clock_gettime, clock, now);
  static const long shift = std::atol(variable("FAULT_CLOCK"));
  if (shift != 0 && clock == CLOCK_REALTIME && is_victim() && triggered()) now->tv_sec += shift;
  return static_cast<int>(status);
}

}  // extern "C"
