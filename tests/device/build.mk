# build.mk: the device library (README.md here), included by the main Makefile: `make device`.
BUILD ?= out/.build
DEVICE_OUT := $(BUILD)/device
DEVICE_LIB := $(DEVICE_OUT)/lib
DEVICE_SOURCES := $(wildcard tests/device/*.cpp)
DEVICE_OBJECTS := $(DEVICE_SOURCES:tests/device/%.cpp=$(DEVICE_OUT)/%.o)
DEVICE_NAMES := libcuda.so.1 libnvrtc.so.13 libnccl.so.2
DEVICE_CXXFLAGS := -std=c++17 -O2 -g -Wall -Wextra -Werror -Wshadow -fPIC -MMD -MP
# every access of a kernel calls the checker: optimised as one program it takes two thirds of the time
DEVICE_CXXFLAGS += -flto=auto -fno-semantic-interposition

.PHONY: device
device: $(DEVICE_LIB)/libdevice.so

$(DEVICE_OUT)/%.o: tests/device/%.cpp
	@mkdir -p $(DEVICE_OUT)
	@echo "CXX $<"
	$(Q)$(CXX) $(DEVICE_CXXFLAGS) -c $< -o $@

DEVICE_SHIM := tests/device/shim.h tests/device/ptx.h tests/device/kernel_abi.h

$(DEVICE_LIB)/libdevice.so: $(DEVICE_OBJECTS) $(DEVICE_SHIM)
	@mkdir -p $(DEVICE_LIB)
	@echo "LD $@"
	$(Q)$(CXX) $(DEVICE_CXXFLAGS) -shared $(DEVICE_OBJECTS) -o $@ -ldl -lrt
	$(Q)cp $(DEVICE_SHIM) $(DEVICE_LIB)/
	$(Q)for name in $(DEVICE_NAMES); do ln -sf libdevice.so $(DEVICE_LIB)/$$name; done
	$(Q)cp $@ $(DEVICE_LIB)/libnvrtc.so.12 # a file of its own: its name says that it is the older one

-include $(DEVICE_OBJECTS:.o=.d)

# -- the probe: a program of the runtime that the tests run on the device library
DEVICE_RUNTIME := $(addprefix runtime/,files/sha256.c device/device.c device/device_kernels.c device/device_cache.c \
                    device/kernel_parts.c \
                    device/device_nccl.c ranks/agree.c ranks/exchange.c ranks/rendezvous.c ranks/comm_nccl.c \
                    ranks/pulse.c ranks/launcher.c \
                    base/arena.c base/ga.c)
DEVICE_CFLAGS := -std=gnu11 -O1 -g -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Iruntime

device: $(DEVICE_OUT)/probe $(DEVICE_OUT)/nvrtc_check

$(DEVICE_OUT)/kernels.cu: templates/cuda/prelude.cu tests/device/probe/probe.cu
	@mkdir -p $(DEVICE_OUT)
	$(Q)cat templates/cuda/prelude.cu tests/device/probe/probe.cu > $@

$(DEVICE_OUT)/probe: tests/device/probe/probe.c $(DEVICE_RUNTIME) $(DEVICE_OUT)/kernels.cu \
                     $(wildcard runtime/*/*.h)
	@echo "CC $@"
	$(Q)$(CC) $(DEVICE_CFLAGS) -DGA_KERNELS='"$(DEVICE_OUT)/kernels.cu"' tests/device/probe/probe.c \
	    $(DEVICE_RUNTIME) -o $@ -ldl -lm -lpthread

$(DEVICE_OUT)/nvrtc_check: tests/nvrtc/nvrtc_check.c $(DEVICE_RUNTIME) $(wildcard runtime/*/*.h)
	@mkdir -p $(DEVICE_OUT)
	@echo "CC $@"
	$(Q)$(CC) $(DEVICE_CFLAGS) $< $(DEVICE_RUNTIME) -o $@ -ldl -lm -lpthread
