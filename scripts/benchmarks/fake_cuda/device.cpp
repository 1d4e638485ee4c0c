// Makes torch's build for CPUs believe that there is one CUDA device, so that FakeTensorMode runs on it. Nothing is computed:
// fake tensors have shapes, types and devices only. Pinned memory is ordinary memory whose addresses are remembered.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace {

using namespace c10;

std::mutex pinned_mutex;
std::map<const char*, size_t> pinned;

void free_pinned(void* data) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  pinned.erase(static_cast<const char*>(data));
  std::free(data);
}

struct PinnedAllocator final : public Allocator {
  DataPtr allocate(size_t bytes) override {
    char* data = static_cast<char*>(std::malloc(bytes ? bytes : 1));
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned[data] = bytes;
    return {data, data, &free_pinned, Device(DeviceType::CPU)};
  }
  DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  const char* address = static_cast<const char*>(data);
  auto after = pinned.upper_bound(address);
  if (after == pinned.begin()) return false;
  auto block = std::prev(after);
  return address <= block->first + block->second;
}

struct FakeGuard final : public impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = DeviceType::CUDA;
  FakeGuard() = default;
  FakeGuard(DeviceType) {}
  static Device device() { return Device(DeviceType::CUDA, 0); }
  static Stream stream() { return Stream(Stream::DEFAULT, device()); }
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return device(); }
  Device getDevice() const override { return device(); }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};

}  // namespace

namespace at {

struct CUDAHooks : public CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator allocator;
    return &allocator;
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks);
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)

}  // namespace at
