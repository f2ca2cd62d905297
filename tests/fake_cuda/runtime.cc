// The stand-in of libcudart: devices, memory, copies, streams and events. Kernels are counted, and compute nothing.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "machine.h"

#define LOCKED std::lock_guard<std::recursive_mutex> locked(machine::lock())

namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct Event {
  machine::Stream* stream = nullptr;
  long at = 0;
  std::chrono::steady_clock::time_point recorded{};

  bool done() const { return stream == nullptr || stream->done() >= at; }
  void wait() const {
    if (stream != nullptr) stream->work_off(at);
  }
};

Event* event(cudaEvent_t handle) { return reinterpret_cast<Event*>(handle); }

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// Count a call that works on the current card, and so makes a context there.
void used(const char* call) {
  machine::count(call);
  machine::make_context(machine::current());
}

bool on_card(const machine::Allocation* memory) {
  return memory != nullptr && memory->kind == machine::Kind::kCard;
}

bool pinned(const machine::Allocation* memory) {
  return memory != nullptr && memory->kind == machine::Kind::kPinned;
}

// Copies between a card and pageable memory leave the source, or wait, as CUDA's do: through a buffer of the driver's.
cudaError_t copy(void* target, const void* source, std::size_t bytes, machine::Stream* stream) {
  const machine::Allocation *to = machine::find(target), *from = machine::find(source);
  const auto now = [=] { std::memmove(target, source, bytes); };
  if (on_card(to) && on_card(from)) {
    used(to->card == from->card ? "copy on a card" : "copy between cards");
    stream->ask(now);
  } else if (on_card(to) && !pinned(from)) {
    used("copy to a card, pageable");
    const char* begin = static_cast<const char*>(source);
    const auto buffer = std::make_shared<std::vector<char>>(begin, begin + bytes);
    stream->ask([=] { std::memcpy(target, buffer->data(), bytes); });
  } else if (on_card(to)) {
    used("copy to a card, pinned");
    stream->ask(now);
  } else if (on_card(from) && !pinned(to)) {
    used("copy from a card, pageable");
    stream->ask(now);
    stream->work_off();
  } else {
    used(on_card(from) ? "copy from a card, pinned" : "copy on the host");
    stream->ask(now);
  }
  return cudaSuccess;
}

cudaError_t launch(cudaStream_t stream) {
  LOCKED;
  used("kernel");
  machine::stream(stream)->ask([] {});
  return cudaSuccess;
}

thread_local std::vector<std::tuple<dim3, dim3, std::size_t, cudaStream_t>> launches;

}  // namespace

// Devices

EXPORTED cudaError_t cudaGetDeviceCount(int* count) {
  LOCKED;
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);  // as the real one does, when it starts
  (void)driver;
  *count = 0;
  machine::start();
  if (machine::broken() != 0) return answer(static_cast<cudaError_t>(machine::broken()));
  *count = machine::card_count();
  return *count != 0 ? cudaSuccess : answer(cudaErrorNoDevice);
}

EXPORTED cudaError_t cudaSetDevice(int card) {
  LOCKED;
  if (card < 0 || card >= machine::card_count()) return answer(cudaErrorInvalidDevice);
  machine::set_current(card);
  used("cudaSetDevice");
  return cudaSuccess;
}

EXPORTED cudaError_t cudaGetDevice(int* card) {
  *card = machine::current();
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceSynchronize() {
  LOCKED;
  used("cudaDeviceSynchronize");
  machine::work_off_card(machine::current());
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceCanAccessPeer(int* can, int one, int other) {
  *can = one != other;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  LOCKED;
  used("cudaDeviceEnablePeerAccess");
  machine::make_context(peer);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int card) {
  std::snprintf(text, length, "0000:%02x:00.0", 0x10 + machine::card(card).number);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

EXPORTED cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 233472; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 232448; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    default: *value = 1;
  }
  return cudaSuccess;
}

EXPORTED cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int card) {
  std::memset(found, 0, sizeof *found);
  const machine::Card& asked = machine::card(card);
  const char* kind = asked.number == machine::fastest_card() ? "Fake fast card" : "Fake card";
  std::snprintf(found->name, sizeof found->name, "%s%s", kind, asked.slice ? " MIG 1g.1gb" : "");
  std::memset(&found->uuid, 0x11, sizeof found->uuid);
  reinterpret_cast<char*>(&found->uuid)[15] = static_cast<char>(asked.number);
  found->totalGlobalMem = machine::card_bytes();
  found->sharedMemPerBlock = 49152;
  found->sharedMemPerBlockOptin = 232448;
  found->sharedMemPerMultiprocessor = 233472;
  found->regsPerBlock = found->regsPerMultiprocessor = 65536;
  found->warpSize = 32;
  found->maxThreadsPerBlock = 1024;
  found->maxThreadsPerMultiProcessor = 2048;
  found->maxBlocksPerMultiProcessor = 32;
  for (int axis = 0; axis < 3; axis++) {
    found->maxThreadsDim[axis] = 1024;
    found->maxGridSize[axis] = axis == 0 ? 2147483647 : 65535;
  }
  found->major = 9;
  found->multiProcessorCount = 132;
  found->l2CacheSize = 50 << 20;
  found->unifiedAddressing = 1;
  found->pciBusID = 0x10 + asked.number;
  return cudaSuccess;
}

// What programs built for CUDA 12 call, TensorFlow's among them: the structure is equal up to `minor`, and longer.
EXPORTED cudaError_t cudaGetDeviceProperties_v2(char* found, int card) {
  constexpr std::size_t kBytes = 1032, kCount = 388, kCache = 616, kThreads = 624, kShared = 640;
  cudaDeviceProp known;
  cudaGetDeviceProperties(&known, card);
  std::memset(found, 0, kBytes);
  std::memcpy(found, &known, offsetof(cudaDeviceProp, textureAlignment));
  std::memcpy(found + kCount, &known.multiProcessorCount, sizeof known.multiProcessorCount);
  std::memcpy(found + kCache, &known.l2CacheSize, sizeof known.l2CacheSize);
  std::memcpy(found + kThreads, &known.maxThreadsPerMultiProcessor, sizeof known.maxThreadsPerMultiProcessor);
  std::memcpy(found + kShared, &known.sharedMemPerMultiprocessor, sizeof known.sharedMemPerMultiprocessor);
  return cudaSuccess;
}

// Memory

EXPORTED cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  LOCKED;
  machine::count("cudaMalloc");
  *address = machine::allocate(bytes, machine::Kind::kCard);
  return *address != nullptr ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}

EXPORTED cudaError_t cudaFree(void* address) {
  LOCKED;
  used("cudaFree");
  machine::work_off_card(machine::current());
  machine::release(address);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  LOCKED;
  machine::count("cudaHostAlloc");
  *address = machine::allocate(bytes, machine::Kind::kPinned);
  return *address != nullptr ? cudaSuccess : answer(cudaErrorMemoryAllocation);
}

EXPORTED cudaError_t cudaFreeHost(void* address) {
  LOCKED;
  machine::release(address);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  LOCKED;
  used("cudaMemGetInfo");
  *total = machine::card_bytes();
  *free = *total - machine::bytes_taken(machine::current());
  return cudaSuccess;
}

EXPORTED cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
  LOCKED;
  std::memset(found, 0, sizeof *found);
  const machine::Allocation* memory = machine::find(address);
  void* place = const_cast<void*>(address);
  found->type = memory == nullptr ? cudaMemoryTypeUnregistered : pinned(memory) ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  found->device = memory == nullptr ? -2 : memory->card;
  found->devicePointer = memory == nullptr ? nullptr : place;
  found->hostPointer = on_card(memory) ? nullptr : place;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind,
                                     cudaStream_t stream) {
  LOCKED;
  return copy(target, source, bytes, machine::stream(stream));
}

EXPORTED cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* source, int, std::size_t bytes,
                                         cudaStream_t stream) {
  LOCKED;
  return copy(target, source, bytes, machine::stream(stream));
}

EXPORTED cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind) {
  LOCKED;
  machine::work_off_card(machine::current());
  machine::Stream* stream = machine::stream(nullptr);
  copy(target, source, bytes, stream);
  stream->work_off();
  return cudaSuccess;
}

EXPORTED cudaError_t cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source,
                                       std::size_t source_pitch, std::size_t width, std::size_t height, cudaMemcpyKind,
                                       cudaStream_t stream) {
  LOCKED;
  used("copy of rows");
  machine::stream(stream)->ask([=] {
    for (std::size_t row = 0; row < height; row++) {
      std::memmove(static_cast<char*>(target) + row * target_pitch, static_cast<const char*>(source) + row * source_pitch,
                   width);
    }
  });
  return cudaSuccess;
}

EXPORTED cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  LOCKED;
  used("cudaMemsetAsync");
  machine::stream(stream)->ask([=] { std::memset(address, value, bytes); });
  return cudaSuccess;
}

// Streams and events

EXPORTED cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  LOCKED;
  used("cudaStreamCreate");
  *stream = machine::make_stream();
  return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

EXPORTED cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

EXPORTED cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

EXPORTED cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  LOCKED;
  used("cudaStreamSynchronize");
  machine::stream(stream)->work_off();
  return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamQuery(cudaStream_t stream) {
  LOCKED;
  machine::Stream* asked = machine::stream(stream);
  return asked->done() == asked->asked() ? cudaSuccess : cudaErrorNotReady;
}

EXPORTED cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
  LOCKED;
  machine::count("cudaStreamWaitEvent");
  machine::stream(stream)->ask([awaited = *event(handle)] { awaited.wait(); });
  return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                              void*, void*, void*, void*) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

EXPORTED cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  LOCKED;
  used("cudaEventCreate");
  *handle = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, 0); }

EXPORTED cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  LOCKED;
  delete event(handle);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  LOCKED;
  machine::count("cudaEventRecord");
  machine::Stream* recorded = machine::stream(stream);
  *event(handle) = {recorded, recorded->asked(), std::chrono::steady_clock::now()};
  return cudaSuccess;
}

EXPORTED cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned) {
  return cudaEventRecord(handle, stream);
}

EXPORTED cudaError_t cudaEventQuery(cudaEvent_t handle) {
  LOCKED;
  return event(handle)->done() ? cudaSuccess : cudaErrorNotReady;
}

EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  LOCKED;
  machine::count("cudaEventSynchronize");
  event(handle)->wait();
  return cudaSuccess;
}

EXPORTED cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  LOCKED;
  *milliseconds = std::chrono::duration<float, std::milli>(event(to)->recorded - event(from)->recorded).count();
  return cudaSuccess;
}

// Errors

EXPORTED cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

EXPORTED cudaError_t cudaPeekAtLastError() { return last_error; }

EXPORTED const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorFake";
}

EXPORTED const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    default: return "an error of the fake machine";
  }
}

// Kernels

EXPORTED cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}

EXPORTED cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}

EXPORTED cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void*, void**) {
  return launch(how->stream);
}

EXPORTED cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  LOCKED;
  machine::stream(stream)->ask([=] { function(data); });
  return cudaSuccess;
}

EXPORTED unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
  launches.emplace_back(grid, block, shared, static_cast<cudaStream_t>(stream));
  return 0;
}

EXPORTED cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (launches.empty()) return cudaErrorUnknown;
  std::tie(*grid, *block, *shared, *static_cast<cudaStream_t*>(stream)) = launches.back();
  launches.pop_back();
  return cudaSuccess;
}

EXPORTED void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}

EXPORTED void __cudaRegisterFatBinaryEnd(void**) {}
EXPORTED void __cudaUnregisterFatBinary(void**) {}
EXPORTED void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
EXPORTED void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
EXPORTED char __cudaInitModule(void**) { return 1; }

EXPORTED cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return cudaSuccess;
}

EXPORTED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  std::memset(found, 0, sizeof *found);
  found->maxThreadsPerBlock = 1024;
  found->numRegs = 32;
  found->ptxVersion = found->binaryVersion = 90;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

EXPORTED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, std::size_t) {
  *blocks = 2;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                            unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

EXPORTED cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = const_cast<void*>(symbol);
  return cudaSuccess;
}
