// What the plugin links and never calls: cuDNN's frontend names these functions in parts of it that are not used. Each
// ends the program with its name, so that a fake of it is written when it comes to be used.
#include <cstdio>
#include <cstdlib>

#define UNUSED_CALL(name)                                                                    \
  extern "C" int name() {                                                                    \
    std::fputs("fake GPU: there is no " #name " yet; write one in test/fake_gpu\n", stderr); \
    std::abort();                                                                            \
  }

UNUSED_CALL(cudaGraphRetainUserObject)
UNUSED_CALL(cudaKernelSetAttributeForDevice)
UNUSED_CALL(cudaLaunchKernel)
UNUSED_CALL(cudaLibraryGetKernel)
UNUSED_CALL(cudaLibraryLoadData)
UNUSED_CALL(cudaLibraryUnload)
UNUSED_CALL(cudaPointerGetAttributes)
UNUSED_CALL(cudaStreamGetCaptureInfo)
UNUSED_CALL(cudaThreadExchangeStreamCaptureMode)
UNUSED_CALL(cudaUserObjectCreate)
UNUSED_CALL(cudaUserObjectRelease)
UNUSED_CALL(nvrtcCompileProgram)
UNUSED_CALL(nvrtcCreateProgram)
UNUSED_CALL(nvrtcDestroyProgram)
UNUSED_CALL(nvrtcGetCUBIN)
UNUSED_CALL(nvrtcGetCUBINSize)
UNUSED_CALL(nvrtcGetProgramLog)
UNUSED_CALL(nvrtcGetProgramLogSize)
