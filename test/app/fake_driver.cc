// An NVIDIA driver that says it has a device and can do nothing else.
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int) {
  *device = 0;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i);
  return 0;
}
}
