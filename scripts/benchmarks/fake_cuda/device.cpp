// Makes torch's build for CPUs believe that there is one CUDA device, so that FakeTensorMode runs on it. Nothing is computed:
// fake tensors have shapes, types and devices only. Pinned memory is memory in one range of addresses.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <sys/mman.h>

#include <atomic>

namespace {

using namespace c10;

constexpr size_t PINNED = size_t(1) << 40;  // reserved addresses, of which those in use are memory; none is given back

struct PinnedAllocator final : public Allocator {
  char* const begin = static_cast<char*>(
      mmap(nullptr, PINNED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  std::atomic<size_t> used{0};

  DataPtr allocate(size_t bytes) override {
    char* data = begin + used.fetch_add((bytes / 64 + 1) * 64);
    return {data, data, &keep, Device(DeviceType::CPU)};
  }
  static void keep(void*) {}
  DeleterFnPtr raw_deleter() const override { return &keep; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool owns(const void* data) const { return begin <= data && data < begin + PINNED; }
};

PinnedAllocator& pinned() {
  static PinnedAllocator allocator;
  return allocator;
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
  bool isPinnedPtr(const void* data) const override { return pinned().owns(data); }
  Allocator* getPinnedMemoryAllocator() const override { return &pinned(); }
};

REGISTER_CUDA_HOOKS(CUDAHooks);
C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)

}  // namespace at
