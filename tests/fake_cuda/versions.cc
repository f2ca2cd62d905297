// The versions that NVIDIA's other libraries say they have, which JAX compares before it starts; each has all of these.
#include "machine.h"

namespace {

constexpr int kMajor = 13;
constexpr std::size_t kCudnn = 99900;  // newer than whatever a framework was built with

int property(int which, int* value) {
  *value = which == 0 ? kMajor : 0;
  return 0;
}

}  // namespace

EXPORTED std::size_t cudnnGetVersion() { return kCudnn; }

EXPORTED int cudnnGetProperty(int which, int* value) {
  *value = static_cast<int>(which == 0 ? kCudnn / 10000 : which == 1 ? kCudnn / 100 % 100 : kCudnn % 100);
  return 0;
}

EXPORTED int cublasGetProperty(int which, int* value) { return property(which, value); }
EXPORTED int cufftGetProperty(int which, int* value) { return property(which, value); }
EXPORTED int cusparseGetProperty(int which, int* value) { return property(which, value); }
EXPORTED int cusolverGetProperty(int which, int* value) { return property(which, value); }

EXPORTED int cufftGetVersion(int* version) {
  *version = kMajor * 1000;
  return 0;
}

EXPORTED int cublasGetVersion_v2(void*, int* version) {
  *version = kMajor * 10000;
  return 0;
}

EXPORTED int cusparseGetVersion(void*, int* version) {
  *version = kMajor * 1000;
  return 0;
}

EXPORTED int cuptiGetVersion(unsigned* version) {
  *version = kMajor * 10000;
  return 0;
}
