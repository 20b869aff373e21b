// An NVIDIA driver that says it has a device and can do nothing else.
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
}
