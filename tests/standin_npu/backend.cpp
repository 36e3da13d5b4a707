// A stand-in for an NPU: a PyTorch back-end on the PrivateUse1 key, the mechanism that torch_npu uses, with its memory on
// the host. What a device would compute, the CPU computes on copies (at::native::cpu_fallback). It exists to watch the
// program: it counts copies and waits, keeps the names of operators, and refuses what a real device refuses.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

constexpr auto NPU = c10::DeviceType::PrivateUse1;
constexpr auto KEYS = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
constexpr int KINDS = 4;  // host to device, device to host, on the device, waits

std::atomic<int64_t> counts[KINDS], copied_bytes[KINDS], allocated{0}, peak{0};
std::mutex guard;
std::map<std::string, int64_t> operators;
std::set<std::string> announced;  // operators said to fall back to the CPU, as torch_npu says it
std::string text;                 // what `standin_operators` returns
int cards = 1;
thread_local int current = 0;
thread_local int inside = 0;  // of the CPU's work for the device: its copies are nobody's

struct Inside {
  Inside() { ++inside; }
  ~Inside() { --inside; }
};

void count(int kind, int64_t bytes = 0) {
  if (inside) return;
  counts[kind] += 1;
  copied_bytes[kind] += bytes;
}

void note(const std::string& name) {
  std::lock_guard<std::mutex> lock(guard);
  ++operators[name];
}

bool on_npu(const at::Tensor& x) { return x.device().type() == NPU; }

// ---- memory

struct Allocator final : c10::Allocator {
  struct Block {
    void* data;
    size_t size;
  };
  static void release(void* context) {
    auto* block = static_cast<Block*>(context);
    allocated -= static_cast<int64_t>(block->size);
    std::free(block->data);
    delete block;
  }
  c10::DataPtr allocate(size_t size) override {
    auto* limit = std::getenv("STANDIN_NPU_MEMORY");
    TORCH_CHECK(!limit || allocated + static_cast<int64_t>(size) <= std::atoll(limit),
                "NPU out of memory. Tried to allocate ", size, " bytes");
    auto* block = new Block{size ? std::aligned_alloc(64, (size + 63) / 64 * 64) : nullptr, size};
    allocated += static_cast<int64_t>(size);
    if (allocated > peak) peak = allocated.load();
    return {block->data, block, &release, c10::Device(NPU, static_cast<c10::DeviceIndex>(current))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t size) const override { std::memcpy(to, from, size); }
};
Allocator allocator;
REGISTER_ALLOCATOR(NPU, &allocator);

void select(std::optional<c10::Device> device) {
  if (device && device->has_index()) {
    TORCH_CHECK(device->index() < cards, "Invalid device ID: npu:", int(device->index()), ", there are ", cards);
    current = device->index();
  }
}

c10::ScalarType allowed(std::optional<c10::ScalarType> dtype) {
  auto type = dtype.value_or(c10::typeMetaToScalarType(c10::get_default_dtype()));
  TORCH_CHECK(type != c10::kDouble && type != c10::kComplexDouble, "float64 is not supported on the NPU");
  return type;
}

at::Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  int before = current;
  select(device);
  auto made = at::detail::empty_generic(size, &allocator, KEYS, allowed(dtype), format);
  current = before;
  return made;
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  int before = current;
  select(device);
  auto made = at::detail::empty_strided_generic(size, stride, &allocator, KEYS, allowed(dtype));
  current = before;
  return made;
}

const at::Tensor& grow(const at::Tensor& self, at::IntArrayRef size, std::optional<c10::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  size_t need = (impl->storage_offset() + impl->numel()) * self.itemsize();
  const c10::Storage& storage = impl->unsafe_storage();
  if (storage.nbytes() < need) {
    auto data = allocator.allocate(need);
    if (storage.nbytes()) std::memcpy(data.get(), storage.data(), storage.nbytes());
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(need);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (stride.empty()) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  return self;
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::as_strided_tensorimpl(self, size, stride, self.storage_offset());
}

// ---- copies

at::Tensor on_host(const at::Tensor& x) {  // the same memory
  if (!on_npu(x)) return x;
  return at::from_blob(const_cast<void*>(x.const_data_ptr()), x.sizes(), x.strides(), x.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  if (!on_npu(from)) {
    count(0, from.nbytes());
  } else if (!on_npu(to)) {
    count(1, from.nbytes());
  } else {
    count(2, from.nbytes());
  }
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) grow(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  note("aten::_local_scalar_dense");
  count(1, self.nbytes());
  return at::_local_scalar_dense(on_host(self));
}

// ---- random numbers

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(NPU, index < 0 ? static_cast<c10::DeviceIndex>(current) : index), KEYS),
        cpu(at::detail::createCPUGenerator()) {}
  static constexpr int64_t MARK = 8;  // its state is longer than the CPU's: real devices have another format as well

  void set_current_seed(uint64_t seed) override { cpu.set_current_seed(seed); }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return cpu.current_seed(); }
  uint64_t seed() override { return cpu.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    auto size = cpu.get_state().numel();
    TORCH_CHECK(state.numel() == size + MARK, "RNG state is wrong size");
    auto inner = at::empty({size}, at::kByte);
    std::memcpy(inner.data_ptr(), static_cast<const char*>(state.data()) + MARK, size);
    cpu.set_state(inner);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto inner = cpu.get_state();
    auto state = at::empty({inner.numel() + MARK}, at::kByte);
    std::memset(state.data_ptr(), 0, MARK);
    std::memcpy(static_cast<char*>(state.data_ptr()) + MARK, inner.data_ptr(), inner.numel());
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device_.index());
    copy->cpu.set_state(cpu.get_state());
    return copy;
  }

  at::Generator cpu;
};

// ---- everything else

void refuse_mixture(const std::string& name, const torch::jit::Stack& stack, size_t arguments) {
  std::optional<c10::Device> device, host;
  auto look = [&](const at::Tensor& x) {
    if (!x.defined()) return;
    if (on_npu(x)) {
      TORCH_CHECK(!device || *device == x.device(), name, ": tensors on ", *device, " and ", x.device());
      device = x.device();
    } else if (x.dim() > 0) {  // a number in a tensor goes along, as on CUDA
      host = x.device();
    }
  };
  for (auto it = stack.end() - arguments; it != stack.end(); ++it) {
    if (it->isTensor()) look(it->toTensor());
    if (it->isTensorList()) {
      for (const at::Tensor& x : it->toTensorVector()) look(x);
    }
  }
  TORCH_CHECK(!device || !host, name, ": expected all tensors to be on the same device, but found ", *device, " and cpu");
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  auto name = op.schema().name();
  note(name);
  auto arguments = op.schema().arguments().size();
  refuse_mixture(name, *stack, arguments);
  for (auto it = stack->end() - arguments; it != stack->end(); ++it) {
    if (!it->isGenerator()) continue;
    auto generator = it->toGenerator();
    if (generator.device().type() == NPU) *it = static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->cpu;
  }
  if (announced.count(name)) {
    TORCH_WARN("CAUTION: The operator '", name, "' is not currently supported on the NPU backend and will fall back ",
               "to run on the CPU. This may have performance implications.");
  }
  Inside here;
  at::native::cpu_fallback(op, stack);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return NPU; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {NPU, static_cast<c10::DeviceIndex>(current)}; }
  void setDevice(c10::Device device) const override { select(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.index(); }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(cards); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const { return true; }
  bool isAvailable() const { return cards > 0; }
  at::Generator getNewGenerator(c10::DeviceIndex index) const { return at::make_generator<Generator>(index); }
  bool hasPrimaryContext(c10::DeviceIndex) const { return true; }
  c10::DeviceIndex deviceCount() const { return static_cast<c10::DeviceIndex>(cards); }
  c10::DeviceIndex getCurrentDevice() const { return static_cast<c10::DeviceIndex>(current); }
  void setCurrentDevice(c10::DeviceIndex index) const { current = index; }
};
Hooks hooks;
bool hooked = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", grow);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
}

}  // namespace

// ---- for torch_npu.py, through ctypes

extern "C" {
int64_t standin_count(int kind) { return counts[kind]; }
int64_t standin_bytes(int kind) { return copied_bytes[kind]; }
int64_t standin_allocated() { return allocated; }
int64_t standin_peak() { return peak; }
int standin_current() { return current; }
void standin_select(int card) { current = card; }
void standin_cards(int number) { cards = number; }
void standin_wait() { count(3); }
void standin_announce(const char* name) { announced.insert(name); }
void standin_clear() {
  for (int kind = 0; kind < KINDS; ++kind) counts[kind] = copied_bytes[kind] = 0;
  peak = allocated.load();
  std::lock_guard<std::mutex> lock(guard);
  operators.clear();
}
const char* standin_operators() {
  std::lock_guard<std::mutex> lock(guard);
  text.clear();
  for (auto& [name, number] : operators) text += name + " " + std::to_string(number) + "\n";
  return text.c_str();
}
}
