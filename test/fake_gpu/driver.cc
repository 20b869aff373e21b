// libcuda.so.1 of the fake device: its GPUs, and nothing to be done with them.
// cuDNN looks functions of the driver up when it plans, and calls none of them for a GPU that is only described.
#include "test/fake_gpu/device_count.h"

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) {
  *count = lockstep::fake_gpu::device_count();
  return 0;
}
int cuDeviceGet(int* device, int number) {
  *device = number;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(0xfa + i);
  uuid[15] = static_cast<unsigned char>(device);
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "the fake driver does not do that";
  return 0;
}
}

#define NOT_SUPPORTED(name) \
  extern "C" int name() { return 801; }

NOT_SUPPORTED(cuCtxGetCurrent)
NOT_SUPPORTED(cuCtxGetLimit)
NOT_SUPPORTED(cuCtxPopCurrent)
NOT_SUPPORTED(cuCtxPushCurrent)
NOT_SUPPORTED(cuDriverGetVersion)
NOT_SUPPORTED(cuGetErrorName)
NOT_SUPPORTED(cuGetProcAddress)
NOT_SUPPORTED(cuKernelGetAttribute)
NOT_SUPPORTED(cuKernelSetAttribute)
NOT_SUPPORTED(cuLaunchCooperativeKernel)
NOT_SUPPORTED(cuLaunchKernel)
NOT_SUPPORTED(cuLaunchKernelEx)
NOT_SUPPORTED(cuLibraryGetKernel)
NOT_SUPPORTED(cuLibraryLoadData)
NOT_SUPPORTED(cuLibraryLoadFromFile)
NOT_SUPPORTED(cuLibraryUnload)
NOT_SUPPORTED(cuLinkAddData)
NOT_SUPPORTED(cuLinkComplete)
NOT_SUPPORTED(cuLinkCreate)
NOT_SUPPORTED(cuLinkDestroy)
NOT_SUPPORTED(cuOccupancyMaxPotentialClusterSize)
NOT_SUPPORTED(cuStreamGetCtx)
