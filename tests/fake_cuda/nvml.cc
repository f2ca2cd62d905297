// The stand-in of libnvidia-ml, the driver's own list of cards; CUDA_VISIBLE_DEVICES does not concern it.
//
// Settings: FAKE_CUDA_GPUS cards; FAKE_CUDA_MIG=1 and FAKE_CUDA_FASTEST as in machine.h; FAKE_NVML_BROKEN answers each
// start with that error (18: another version's driver).
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kOk = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;

int users = 0;
int starts = 0;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int cards() { return setting("FAKE_CUDA_GPUS", 4); }

struct Memory {
  unsigned long long total, free, used;
};

}  // namespace

EXPORTED int nvmlInit_v2() {
  const int broken = setting("FAKE_NVML_BROKEN", kOk);
  starts++;
  if (broken == kOk) users++;
  return broken;
}

EXPORTED int nvmlInit() { return nvmlInit_v2(); }

EXPORTED int nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }

EXPORTED int nvmlShutdown() {
  if (users == 0) return kUninitialized;
  users--;
  return kOk;
}

EXPORTED const char* nvmlErrorString(int error) {
  return error == 18 ? "Driver/library version mismatch" : error == kUninitialized ? "Uninitialized" : "Not Supported";
}

EXPORTED int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.00");
  return kOk;
}

EXPORTED int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kOk;
}

EXPORTED int nvmlDeviceGetCount_v2(unsigned* count) {
  if (users == 0) return kUninitialized;
  *count = static_cast<unsigned>(cards());
  return kOk;
}

EXPORTED int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (users == 0) return kUninitialized;
  if (static_cast<int>(index) >= cards()) return kInvalidArgument;
  *handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(index + 1));
  return kOk;
}

EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** handle) {
  return nvmlDeviceGetHandleByIndex_v2(0, handle);
}

EXPORTED int nvmlDeviceGetName(void* handle, char* text, unsigned length) {
  const bool fastest = setting("FAKE_CUDA_FASTEST", -1) == static_cast<int>(reinterpret_cast<std::intptr_t>(handle) - 1);
  std::snprintf(text, length, fastest ? "Fake fast card" : "Fake card");
  return kOk;
}

EXPORTED int nvmlDeviceGetUUID(void* handle, char* text, unsigned length) {
  const auto index = static_cast<unsigned>(reinterpret_cast<std::intptr_t>(handle) - 1);
  std::snprintf(text, length, "GPU-11111111-1111-1111-1111-1111111111%02x", index);
  return kOk;
}

EXPORTED int nvmlDeviceGetMemoryInfo(void*, Memory* found) {
  *found = {8ull << 30, 7ull << 30, 1ull << 30};
  return kOk;
}

EXPORTED int nvmlDeviceGetMigMode(void*, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<unsigned>(setting("FAKE_CUDA_MIG", 0));
  return kOk;
}

EXPORTED int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kOk;
}

EXPORTED int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return kOk;
}

EXPORTED int nvmlDeviceGetNvLinkRemoteDeviceType() { return kNotSupported; }
EXPORTED int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return kNotSupported; }
EXPORTED int nvmlDeviceGetGpuFabricInfoV() { return kNotSupported; }

// What the tests ask, through ctypes.
EXPORTED int fake_nvml_starts() { return starts; }
