#include "backend/cuda/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

namespace lockstep::cuda {
namespace {

class NvtxRanges final : public SpanObserver {
 public:
  explicit NvtxRanges(nvtxDomainHandle_t domain) : domain_(domain) {}

  void begin(const char* name) noexcept override {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    nvtxDomainRangePushEx(domain_, &attributes);
  }
  void end() noexcept override { nvtxDomainRangePop(domain_); }

 private:
  nvtxDomainHandle_t domain_;
};

}  // namespace

SpanObserver* nvtx_ranges() {
  // Never destroyed: threads may still end spans while static objects are being destroyed.
  static SpanObserver* const instance = []() -> SpanObserver* {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("lockstep");  // null without a tool
    return domain ? new NvtxRanges(domain) : nullptr;
  }();
  return instance;
}

}  // namespace lockstep::cuda
