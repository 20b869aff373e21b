// A tool as NVTX loads it: writes down the ranges of the domain "lockstep", of the first thread that begins one, each
// line indented by the ranges that are open.
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace {

struct Recording {
  std::mutex mutex;
  std::thread::id thread;
  int depth = 0;
  std::string text;
};

Recording& recording() {
  static Recording* const instance = new Recording;
  return *instance;
}

int the_domain = 0;

nvtxDomainHandle_t create_domain(const char* name) {
  return std::string_view(name) == "lockstep" ? reinterpret_cast<nvtxDomainHandle_t>(&the_domain) : nullptr;
}

// Whether the caller is the thread whose ranges are written down.
bool is_followed(Recording& to) {
  if (to.thread == std::thread::id()) to.thread = std::this_thread::get_id();
  return to.thread == std::this_thread::get_id();
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  Recording& to = recording();
  const std::lock_guard lock(to.mutex);
  if (!is_followed(to)) return 0;
  const bool ours = domain == reinterpret_cast<nvtxDomainHandle_t>(&the_domain);
  const bool named = attributes->messageType == NVTX_MESSAGE_TYPE_ASCII;
  to.text += std::string(static_cast<size_t>(2 * to.depth), ' ') +
             (ours && named ? attributes->message.ascii : "neither ours nor named") + '\n';
  return to.depth++;
}

int pop(nvtxDomainHandle_t) {
  Recording& to = recording();
  const std::lock_guard lock(to.mutex);
  if (!is_followed(to)) return 0;
  if (to.depth == 0) to.text += "an end without a beginning\n";
  return --to.depth;
}

}  // namespace

// NVTX calls it once.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size)) return 0;
  if (size <= NVTX_CBID_CORE2_DomainCreateA) return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create_domain);
  *functions[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

// For the test: the lines so far; the text lives until the next range.
extern "C" __attribute__((visibility("default"))) const char* nvtx_recorder_lines() { return recording().text.c_str(); }
