// Simulated GPUs for PaddlePaddle: a plug-in of the device type "sim_gpu", whose memory is the host's.
//
// A plug-in is a table of C functions (allocate, free, copy, wait, ...), which InitPlugin at the end of this file fills
// in and Paddle calls.  These functions use malloc and memcpy, count the bytes of each GPU, and fail where a limit or
// a fault says so.  There are no kernels: for each operator Paddle copies the arguments to the host, computes there,
// and copies the results back.
//
// simulation/plugin.py compiles this file against the headers in the installed Paddle; simulation/memory.py calls the
// functions devshim_* through ctypes.
//
// Requirements that this file meets:
//
// * Every tensor is one allocation here, of its own bytes, which is given back when the tensor is freed: Paddle is
//   configured to align to one byte and to keep no chunks, so that the count is exact.  A simulated GPU rounds to
//   ROUND, as those of devshim/simulation/memory.py do.
// * A full GPU returns no memory and no error: only then does Paddle raise the MemoryError that a full CUDA GPU
//   raises, and not the OSError of a broken plug-in.  The failure is stored for the thread that asked.
// * Paddle allocates without holding Python's lock, so every GPU has a lock of its own.
// * Paddle asks a full GPU a second time after it has looked for memory to give back: that is one event, not two.
// * Paddle asks for the number of GPUs only once: it is always RESERVED, and simulation/visibility.py hides some.

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "paddle/phi/backends/device_ext.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int RESERVED = 64;
constexpr size_t ROUND = 512;
constexpr size_t CUDA_ROUND = 256;  // of Paddle's own allocator for CUDA, which its own counters show
constexpr long long NO_LIMIT = -1;

// As in simulation/memory.py.
enum What : long long { ALLOCATION = 0, COPY = 1, VANISH = 2 };
struct Fault { long long what, at, times; };
struct State { long long used, peak, lost, cuda_used, cuda_peak; };
struct Failure { long long gpu, bytes, available, lost; };  // lost: at an allocation 1, at a copy 2

struct Gpu {
  std::mutex lock;
  long long limit = NO_LIMIT;
  size_t used = 0, peak = 0, cuda_used = 0, cuda_peak = 0;
  long long events[2] = {0, 0};
  std::vector<Fault> faults;
  bool lost = false;

  // Count an event, with the lock held; return true if it fails.
  bool fails(What event) {
    ++events[event];
    for (const Fault& fault : faults) {
      if (fault.what == VANISH) {
        lost = lost || events[ALLOCATION] + events[COPY] >= fault.at;
      } else if (fault.what == event && fault.at <= events[event] && events[event] < fault.at + fault.times) {
        return true;
      }
    }
    return lost;
  }

  // The largest possible allocation: a multiple of ROUND.
  long long available() const {
    if (limit == NO_LIMIT) return NO_LIMIT;
    return std::max<long long>(limit - static_cast<long long>(used), 0) / ROUND * ROUND;
  }
};

// Never destroyed: Paddle frees tensors while the process ends, possibly after the destructors of static objects.
Gpu* const GPUS = new Gpu[RESERVED];
thread_local int CURRENT = 0;
thread_local Failure FAILURE{-1, 0, 0, 0};
thread_local struct { int gpu; size_t bytes; bool refused; } RETRY{-1, 0, false};  // a request, until its retry

size_t rounded(size_t bytes, size_t step = ROUND) { return (bytes + step - 1) / step * step; }

bool is_lost(int id) {
  std::lock_guard<std::mutex> guard(GPUS[id].lock);
  return GPUS[id].lost;
}

C_Status nothing() { return C_SUCCESS; }
C_Status nothing_on(const C_Device) { return C_SUCCESS; }

C_Status set_current(const C_Device device) {
  CURRENT = device->id;
  return C_SUCCESS;
}

C_Status get_current(const C_Device device) {
  device->id = CURRENT;
  return C_SUCCESS;
}

C_Status count(size_t* found) {
  *found = RESERVED;
  return C_SUCCESS;
}

C_Status list(size_t* found) {
  for (int i = 0; i < RESERVED; ++i) found[i] = i;
  return C_SUCCESS;
}

// ---------------------------------------------------------------- memory
C_Status allocate(const C_Device device, void** found, size_t bytes) {
  Gpu& gpu = GPUS[device->id];
  std::lock_guard<std::mutex> guard(gpu.lock);
  const size_t size = rounded(bytes);
  const bool is_retry = RETRY.gpu == device->id && RETRY.bytes == bytes;
  const bool refused = is_retry ? RETRY.refused || gpu.lost : gpu.fails(ALLOCATION);
  RETRY.gpu = -1;
  const bool full = gpu.limit != NO_LIMIT && static_cast<long long>(gpu.used + size) > gpu.limit;
  *found = refused || full ? nullptr : std::malloc(bytes);
  if (*found == nullptr) {
    FAILURE = {device->id, static_cast<long long>(bytes), gpu.available(), gpu.lost};
    if (!is_retry) RETRY = {device->id, bytes, refused};
    return C_SUCCESS;
  }
  FAILURE.gpu = -1;
  gpu.used += size;
  gpu.peak = std::max(gpu.peak, gpu.used);
  gpu.cuda_used += rounded(bytes, CUDA_ROUND);
  gpu.cuda_peak = std::max(gpu.cuda_peak, gpu.cuda_used);
  return C_SUCCESS;
}

C_Status deallocate(const C_Device device, void* memory, size_t bytes) {
  std::free(memory);
  Gpu& gpu = GPUS[device->id];
  std::lock_guard<std::mutex> guard(gpu.lock);
  gpu.used -= rounded(bytes);
  gpu.cuda_used -= rounded(bytes, CUDA_ROUND);
  return C_SUCCESS;
}

C_Status host_allocate(const C_Device, void** found, size_t bytes) {
  *found = std::malloc(bytes);
  return *found == nullptr ? C_FAILED : C_SUCCESS;
}

C_Status host_deallocate(const C_Device, void* memory, size_t) {
  std::free(memory);
  return C_SUCCESS;
}

C_Status fill(const C_Device, void* memory, unsigned char value, size_t bytes) {
  std::memset(memory, value, bytes);
  return C_SUCCESS;
}

C_Status statistics(const C_Device device, size_t* total, size_t* available) {
  Gpu& gpu = GPUS[device->id];
  std::lock_guard<std::mutex> guard(gpu.lock);
  *total = gpu.limit == NO_LIMIT ? size_t{1} << 40 : gpu.limit;
  *available = gpu.limit == NO_LIMIT ? *total - gpu.used : gpu.available();
  return C_SUCCESS;
}

C_Status alignment(const C_Device, size_t* bytes) {
  *bytes = 1;
  return C_SUCCESS;
}

// ---------------------------------------------------------------- copies
// A GPU that has vanished can neither be read nor be written.
C_Status copy_on(int source, int target, void* to, const void* from, size_t bytes) {
  for (int id : {source, target}) {
    if (is_lost(id)) {
      FAILURE = {id, static_cast<long long>(bytes), 0, 2};
      return C_FAILED;
    }
  }
  FAILURE.gpu = -1;
  std::memcpy(to, from, bytes);
  return C_SUCCESS;
}

C_Status copy(const C_Device device, void* to, const void* from, size_t bytes) {
  return copy_on(device->id, device->id, to, from, bytes);
}

C_Status copy_later(const C_Device device, C_Stream, void* to, const void* from, size_t bytes) {
  return copy_on(device->id, device->id, to, from, bytes);
}

C_Status copy_between(const C_Device target, const C_Device source, void* to, const void* from, size_t bytes) {
  return copy_on(source->id, target->id, to, from, bytes);
}

C_Status copy_between_later(
    const C_Device target, const C_Device source, C_Stream, void* to, const void* from, size_t bytes) {
  return copy_on(source->id, target->id, to, from, bytes);
}

// ---------------------------------------------------------------- streams and events: all work is done when requested
C_Status make_stream(const C_Device, C_Stream* found) {
  *found = nullptr;
  return C_SUCCESS;
}

C_Status make_event(const C_Device, C_Event* found) {
  *found = nullptr;
  return C_SUCCESS;
}

C_Status on_stream(const C_Device, C_Stream) { return C_SUCCESS; }
C_Status on_event(const C_Device, C_Event) { return C_SUCCESS; }
C_Status on_both(const C_Device, C_Stream, C_Event) { return C_SUCCESS; }

C_Status call_back(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  C_Status status = C_SUCCESS;
  callback(device, stream, data, &status);
  return status;
}

}  // namespace

// ---------------------------------------------------------------- for simulation/memory.py
EXPORTED void devshim_begin(int id, long long limit, const Fault* faults, int how_many) {
  Gpu& gpu = GPUS[id];
  std::lock_guard<std::mutex> guard(gpu.lock);
  gpu.limit = limit;
  gpu.peak = gpu.used;
  gpu.events[ALLOCATION] = gpu.events[COPY] = 0;
  gpu.faults.assign(faults, faults + how_many);
  gpu.lost = false;
}

EXPORTED void devshim_reset_peak(int id) {
  std::lock_guard<std::mutex> guard(GPUS[id].lock);
  GPUS[id].peak = GPUS[id].used;
}

EXPORTED void devshim_reset_cuda_peak(int id) {
  std::lock_guard<std::mutex> guard(GPUS[id].lock);
  GPUS[id].cuda_peak = GPUS[id].cuda_used;
}

EXPORTED int devshim_copying(int id) {
  std::lock_guard<std::mutex> guard(GPUS[id].lock);
  return GPUS[id].fails(COPY);
}

EXPORTED void devshim_state(int id, State* found) {
  Gpu& gpu = GPUS[id];
  std::lock_guard<std::mutex> guard(gpu.lock);
  *found = {static_cast<long long>(gpu.used), static_cast<long long>(gpu.peak), gpu.lost,
            static_cast<long long>(gpu.cuda_used), static_cast<long long>(gpu.cuda_peak)};
}

// Return the last failure on this thread, once.
EXPORTED int devshim_take_failure(Failure* found) {
  *found = FAILURE;
  FAILURE.gpu = RETRY.gpu = -1;
  return found->gpu >= 0;
}

// ---------------------------------------------------------------- loading late
// These functions call into Paddle by the mangled names of its C++ functions, which 3.0 to 3.3 export.  If a name is
// missing, or something fails, nothing has changed, and the caller reports that it is too late.
namespace {

template <typename T>
T found_in(void* core, const char* name) {
  return reinterpret_cast<T>(dlsym(core, name));
}

// Set a global variable of glog or Paddle; return the earlier value, or `missing`.
template <typename T>
T set_global(void* core, const char* name, T value, T missing) {
  T* found = found_in<T*>(core, name);
  return found == nullptr ? missing : std::exchange(*found, value);
}

constexpr char LOG_LEVEL[] = "_ZN3fLI17FLAGS_minloglevelE";
constexpr int UNKNOWN = -1;

}  // namespace

// Set how much Paddle logs: 0 everything, 1 no information.
EXPORTED void devshim_log_level(const char* core_path, int level) {
  void* core = dlopen(core_path, RTLD_NOW | RTLD_NOLOAD);
  if (core != nullptr) set_global<int>(core, LOG_LEVEL, level, UNKNOWN);
}

// Make Paddle look for devices again, as it does during its import, with CUSTOM_DEVICE_ROOT set; return 0 on success.
EXPORTED int devshim_attach(const char* core_path) {
  void* core = dlopen(core_path, RTLD_NOW | RTLD_NOLOAD);
  if (core == nullptr) return 1;
  const auto init = found_in<void (*)(std::vector<int>)>(core, "_ZN6paddle9framework11InitDevicesESt6vectorIiSaIiEE");
  const auto set_pool = found_in<void (*)(void*)>(core, "_ZN3phi17DeviceContextPool7SetPoolEPS0_");
  const auto pool = found_in<void* (*)()>(core, "_ZN3phi17DeviceContextPool8InstanceEv");
  // Paddle's own set_flags cannot write these; see simulation/plugin.py for their meaning.
  bool* const free_idle = found_in<bool*>(core, "_ZN12paddle_flags21FLAGS_free_idle_chunkE");
  bool* const free_first = found_in<bool*>(core, "_ZN12paddle_flags28FLAGS_free_when_no_cache_hitE");
  if (!init || !set_pool || !pool || !free_idle || !free_first) return 2;

  const int level = set_global<int>(core, LOG_LEVEL, 1, UNKNOWN);
  void* const before = pool();
  int failed = 0;
  try {
    set_pool(nullptr);  // otherwise Paddle keeps its existing contexts; those stay valid for code that holds one
    init({});
    *free_idle = *free_first = true;
  } catch (...) {
    set_pool(before);
    failed = 3;
  }
  if (level != UNKNOWN) set_global<int>(core, LOG_LEVEL, level, UNKNOWN);
  return failed;
}

// ---------------------------------------------------------------- for Paddle
EXPORTED void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  static char type[] = "sim_gpu", kind[] = "simulated";
  params->device_type = type;
  params->sub_device_type = kind;
  C_DeviceInterface* api = params->interface;
  std::memset(static_cast<void*>(api), 0, sizeof(C_DeviceInterface));
  api->initialize = api->finalize = nothing;
  api->init_device = api->deinit_device = api->synchronize_device = nothing_on;
  api->set_device = set_current;
  api->get_device = get_current;
  api->get_device_count = count;
  api->get_device_list = list;

  api->device_memory_allocate = allocate;
  api->device_memory_deallocate = deallocate;
  api->host_memory_allocate = api->unified_memory_allocate = host_allocate;
  api->host_memory_deallocate = api->unified_memory_deallocate = host_deallocate;
  api->device_memory_set = fill;
  api->device_memory_stats = statistics;
  api->device_min_chunk_size = alignment;

  api->memory_copy_h2d = api->memory_copy_d2h = api->memory_copy_d2d = copy;
  api->async_memory_copy_h2d = api->async_memory_copy_d2h = api->async_memory_copy_d2d = copy_later;
  api->memory_copy_p2p = copy_between;
  api->async_memory_copy_p2p = copy_between_later;

  api->create_stream = make_stream;
  api->destroy_stream = api->synchronize_stream = api->query_stream = on_stream;
  api->stream_add_callback = call_back;
  api->create_event = make_event;
  api->destroy_event = api->synchronize_event = api->query_event = on_event;
  api->record_event = api->stream_wait_event = on_both;
}
