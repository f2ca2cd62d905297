// The stand-in of libcuda: what PyTorch and devshim ask the driver. Other functions are not supported.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "machine.h"

namespace {

constexpr int kOk = 0;
constexpr int kNotInitialized = 3;
constexpr int kNoDevice = 100;
constexpr int kNotSupported = 801;

void* handle_of(int index) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(index + 1)); }

}  // namespace

EXPORTED int cuInit(unsigned) {
  machine::start();
  if (machine::broken() != 0) return machine::broken();
  return machine::card_count() != 0 ? kOk : kNoDevice;
}

EXPORTED int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kOk;
}

EXPORTED int cuDeviceGetCount(int* count) {
  if (!machine::started()) return kNotInitialized;
  *count = machine::card_count();
  return kOk;
}

EXPORTED int cuDeviceGet(int* device, int index) {
  *device = index;
  return kOk;
}

EXPORTED int cuDeviceGetAttribute(int* value, int attribute, int card) {
  constexpr int kMulticast = 132;
  if (attribute != kMulticast) {
    return cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), card);  // the numbers are the same
  }
  *value = 0;
  return kOk;
}

EXPORTED int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = machine::has_context(device);
  return kOk;
}

EXPORTED int cuDevicePrimaryCtxRetain(void** context, int device) {
  machine::make_context(device);
  *context = handle_of(device);
  return kOk;
}

EXPORTED int cuCtxGetCurrent(void** context) {
  *context = machine::has_context(machine::current()) ? handle_of(machine::current()) : nullptr;
  return kOk;
}

EXPORTED int cuCtxSetCurrent(void* context) {
  if (context != nullptr) machine::set_current(static_cast<int>(reinterpret_cast<std::intptr_t>(context)) - 1);
  return kOk;
}

EXPORTED int cuGetErrorString(int, const char** text) {
  *text = "an error of the fake driver";
  return kOk;
}

EXPORTED int cuMemGetAddressRange_v2(void** base, std::size_t* bytes, void* address) {
  *base = address;
  *bytes = 0;
  return kOk;
}

EXPORTED int fake_cuda_not_supported() { return kNotSupported; }

EXPORTED cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                      cudaDriverEntryPointQueryResult* result) {
  char newer[128];
  std::snprintf(newer, sizeof newer, "%s_v2", name);
  void* here = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
  *function = dlsym(here, name);
  if (*function == nullptr) *function = dlsym(here, newer);
  if (*function == nullptr) *function = reinterpret_cast<void*>(&fake_cuda_not_supported);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
