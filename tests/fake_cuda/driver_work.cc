// More of the stand-in of libcuda: cards, memory, copies, streams, events and kernels, which JAX and TensorFlow ask the
// driver for, where PyTorch asks the runtime. What the runtime has is asked there: the numbers of errors are the same.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>

#include "machine.h"

namespace {

CUresult as_driver(cudaError_t error) { return static_cast<CUresult>(error); }

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUresult copy(CUdeviceptr target, CUdeviceptr source, std::size_t bytes) {
  return as_driver(cudaMemcpy(pointer(target), pointer(source), bytes, cudaMemcpyDefault));
}

CUresult copy_later(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  return as_driver(cudaMemcpyAsync(pointer(target), pointer(source), bytes, cudaMemcpyDefault, stream));
}

template <typename T>
CUresult fill(CUdeviceptr target, T value, std::size_t count, CUstream stream) {
  const std::lock_guard<std::recursive_mutex> locked(machine::lock());
  machine::count("cuMemset");
  machine::stream(stream)->ask([=] {
    for (std::size_t i = 0; i < count; i++) std::memcpy(static_cast<T*>(pointer(target)) + i, &value, sizeof value);
  });
  return CUDA_SUCCESS;
}

template <typename T>
CUresult fill_now(CUdeviceptr target, T value, std::size_t count) {
  fill(target, value, count, nullptr);
  return as_driver(cudaStreamSynchronize(nullptr));
}

CUcontext context_of(int card) { return reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(card + 1)); }

int card_of(CUcontext context) { return static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1; }

// Memory of a card without addresses, as cuMemCreate makes it.
struct Physical {
  std::size_t bytes;
  int card;
};

Physical* physical(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Physical*>(handle); }

// One thing for all kernels and modules: nothing is looked at.
template <typename T>
T something() {
  static int it;
  return reinterpret_cast<T>(&it);
}

}  // namespace

// Cards

EXPORTED CUresult cuDeviceGetName(char* text, int length, CUdevice card) {
  cudaDeviceProp found;
  cudaGetDeviceProperties(&found, card);
  std::snprintf(text, length, "%s", found.name);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice card) {
  cudaDeviceProp found;
  cudaGetDeviceProperties(&found, card);
  std::memcpy(uuid, &found.uuid, sizeof *uuid);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = machine::card_bytes();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice card) {
  return as_driver(cudaDeviceGetPCIBusId(text, length, card));
}

EXPORTED CUresult cuDeviceCanAccessPeer(int* can, CUdevice one, CUdevice other) {
  return as_driver(cudaDeviceCanAccessPeer(can, one, other));
}

EXPORTED CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  *value = 1;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned) { return CUDA_SUCCESS; }
EXPORTED CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }

EXPORTED CUresult cuCtxGetDevice(CUdevice* card) {
  *card = machine::current();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxPushCurrent(CUcontext context) {
  machine::set_current(card_of(context));
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxPopCurrent(CUcontext* context) {
  if (context != nullptr) *context = context_of(machine::current());
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuCtxSynchronize() { return as_driver(cudaDeviceSynchronize()); }

EXPORTED CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  return as_driver(cudaDeviceEnablePeerAccess(card_of(peer), 0));
}

EXPORTED CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return as_driver(cudaDeviceGetStreamPriorityRange(least, greatest));
}

// Memory

EXPORTED CUresult cuMemAlloc(CUdeviceptr* found, std::size_t bytes) {
  void* made = nullptr;
  const cudaError_t error = cudaMalloc(&made, bytes);
  *found = address(made);
  return as_driver(error);
}

EXPORTED CUresult cuMemFree(CUdeviceptr memory) { return as_driver(cudaFree(pointer(memory))); }

EXPORTED CUresult cuMemHostAlloc(void** found, std::size_t bytes, unsigned) {
  return as_driver(cudaHostAlloc(found, bytes, 0));
}

EXPORTED CUresult cuMemAllocHost(void** found, std::size_t bytes) { return as_driver(cudaHostAlloc(found, bytes, 0)); }
EXPORTED CUresult cuMemFreeHost(void* memory) { return as_driver(cudaFreeHost(memory)); }
EXPORTED CUresult cuMemHostRegister(void*, std::size_t, unsigned) { return CUDA_SUCCESS; }
EXPORTED CUresult cuMemHostUnregister(void*) { return CUDA_SUCCESS; }

EXPORTED CUresult cuMemHostGetDevicePointer(CUdeviceptr* found, void* memory, unsigned) {
  *found = address(memory);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) { return as_driver(cudaMemGetInfo(free, total)); }

// A card's memory and its addresses apart, as XLA takes them. Memory counts where it is mapped, and is mapped once.

EXPORTED CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                                CUmemAllocationGranularity_flags) {
  *bytes = std::size_t{2} << 20;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* how,
                              unsigned long long) {
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(new Physical{bytes, how->location.id});
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  delete physical(handle);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemAddressReserve(CUdeviceptr* found, std::size_t bytes, std::size_t, CUdeviceptr,
                                      unsigned long long) {
  *found = address(machine::reserve(bytes));
  return *found != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORTED CUresult cuMemAddressFree(CUdeviceptr memory, std::size_t bytes) {
  machine::free_reserved(pointer(memory), bytes);
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemMap(CUdeviceptr memory, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                           unsigned long long) {
  const std::lock_guard<std::recursive_mutex> locked(machine::lock());
  machine::count("cuMemMap");
  return machine::map(pointer(memory), bytes, physical(handle)->card) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORTED CUresult cuMemUnmap(CUdeviceptr memory, std::size_t) {
  const std::lock_guard<std::recursive_mutex> locked(machine::lock());
  machine::unmap(pointer(memory));
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuPointerGetAttribute(void* found, CUpointer_attribute attribute, CUdeviceptr memory) {
  cudaPointerAttributes known;
  cudaPointerGetAttributes(&known, pointer(memory));
  if (known.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *static_cast<CUcontext*>(found) = context_of(known.device); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<CUmemorytype*>(found) =
          known.type == cudaMemoryTypeHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(found) = known.device; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr*>(found) = memory; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(found) = 0; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// Copies

EXPORTED CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) { return copy(to, from, bytes); }

EXPORTED CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return copy(to, address(from), bytes);
}

EXPORTED CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) { return copy(address(to), from, bytes); }
EXPORTED CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) { return copy(to, from, bytes); }

EXPORTED CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_later(to, from, bytes, stream);
}

EXPORTED CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return copy_later(to, address(from), bytes, stream);
}

EXPORTED CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_later(address(to), from, bytes, stream);
}

EXPORTED CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy_later(to, from, bytes, stream);
}

EXPORTED CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes,
                                    CUstream stream) {
  return copy_later(to, from, bytes, stream);
}

EXPORTED CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, std::size_t count) {
  return fill_now(to, value, count);
}

EXPORTED CUresult cuMemsetD32(CUdeviceptr to, unsigned value, std::size_t count) { return fill_now(to, value, count); }

EXPORTED CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

EXPORTED CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

EXPORTED CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream stream) {
  return fill(to, value, count, stream);
}

// Streams and events

EXPORTED CUresult cuStreamCreate(CUstream* stream, unsigned) { return as_driver(cudaStreamCreate(stream)); }

EXPORTED CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  return as_driver(cudaStreamCreate(stream));
}

EXPORTED CUresult cuStreamDestroy(CUstream stream) { return as_driver(cudaStreamDestroy(stream)); }
EXPORTED CUresult cuStreamSynchronize(CUstream stream) { return as_driver(cudaStreamSynchronize(stream)); }
EXPORTED CUresult cuStreamQuery(CUstream stream) { return as_driver(cudaStreamQuery(stream)); }

EXPORTED CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return as_driver(cudaStreamWaitEvent(stream, event, 0));
}

EXPORTED CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return as_driver(cudaStreamGetPriority(stream, priority));
}

EXPORTED CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return as_driver(cudaLaunchHostFunc(stream, function, data));
}

EXPORTED CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data, unsigned) {
  const std::lock_guard<std::recursive_mutex> locked(machine::lock());
  machine::stream(stream)->ask([=] { function(stream, CUDA_SUCCESS, data); });
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return as_driver(cudaEventCreateWithFlags(event, flags));
}

EXPORTED CUresult cuEventDestroy(CUevent event) { return as_driver(cudaEventDestroy(event)); }
EXPORTED CUresult cuEventRecord(CUevent event, CUstream stream) { return as_driver(cudaEventRecord(event, stream)); }
EXPORTED CUresult cuEventQuery(CUevent event) { return as_driver(cudaEventQuery(event)); }
EXPORTED CUresult cuEventSynchronize(CUevent event) { return as_driver(cudaEventSynchronize(event)); }

EXPORTED CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 0.01f;
  return CUDA_SUCCESS;
}

// Kernels

EXPORTED CUresult cuModuleLoadData(CUmodule* module, const void*) {
  *module = something<CUmodule>();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  *module = something<CUmodule>();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuModuleLoadFatBinary(CUmodule* module, const void*) {
  *module = something<CUmodule>();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

EXPORTED CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
  *function = something<CUfunction>();
  return CUDA_SUCCESS;
}

// A program's constants are copied to memory of the module's. No kernel reads it, so that all share a MiB on each card.
EXPORTED CUresult cuModuleGetGlobal(CUdeviceptr* found, std::size_t* bytes, CUmodule, const char*) {
  constexpr std::size_t kRoom = 1 << 20;
  static std::map<int, void*> rooms;
  std::lock_guard<std::recursive_mutex> locked(machine::lock());
  int card = 0;
  cudaGetDevice(&card);
  void*& room = rooms[card];
  const cudaError_t error = room == nullptr ? cudaMalloc(&room, kRoom) : cudaSuccess;
  if (found != nullptr) *found = address(room);
  if (bytes != nullptr) *bytes = kRoom;
  return as_driver(error);
}

EXPORTED CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*,
                                    void**, unsigned) {
  *library = something<CUlibrary>();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }

EXPORTED CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) {
  *kernel = something<CUkernel>();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuKernelGetFunction(CUfunction* function, CUkernel) {
  *function = something<CUfunction>();
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 32;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
EXPORTED CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

EXPORTED CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction, int, std::size_t,
                                                                       unsigned) {
  *blocks = 2;
  return CUDA_SUCCESS;
}

EXPORTED CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 CUstream stream, void**, void**) {
  return as_driver(cudaLaunchKernel(nullptr, {}, {}, nullptr, 0, stream));
}

EXPORTED CUresult cuLaunchKernelEx(const CUlaunchConfig* how, CUfunction, void**, void**) {
  return as_driver(cudaLaunchKernel(nullptr, {}, {}, nullptr, 0, how->hStream));
}

EXPORTED CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY          ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
          : error == CUDA_ERROR_NO_DEVICE            ? "CUDA_ERROR_NO_DEVICE"
                                                     : "CUDA_ERROR_OF_THE_FAKE_DRIVER";
  return CUDA_SUCCESS;
}
