# build.mk: the device library (README.md here). Included by the main Makefile; `make device` builds it.
DEVICE_OUT := out/.build/device
DEVICE_LIB := $(DEVICE_OUT)/lib
DEVICE_SOURCES := $(wildcard tests/device/*.cpp)
DEVICE_OBJECTS := $(DEVICE_SOURCES:tests/device/%.cpp=$(DEVICE_OUT)/%.o)
DEVICE_NAMES := libcuda.so.1 libnvrtc.so.13 libnccl.so.2
DEVICE_CXXFLAGS := -std=c++17 -O2 -g -Wall -Wextra -Werror -Wshadow -fPIC -MMD -MP

.PHONY: device
device: $(DEVICE_LIB)/libdevice.so

$(DEVICE_OUT)/%.o: tests/device/%.cpp
	@mkdir -p $(DEVICE_OUT)
	$(CXX) $(DEVICE_CXXFLAGS) -c $< -o $@

$(DEVICE_LIB)/libdevice.so: $(DEVICE_OBJECTS) tests/device/shim.h tests/device/kernel_abi.h
	@mkdir -p $(DEVICE_LIB)
	$(CXX) -shared $(DEVICE_OBJECTS) -o $@ -ldl -lrt
	cp tests/device/shim.h tests/device/kernel_abi.h $(DEVICE_LIB)/
	for name in $(DEVICE_NAMES); do ln -sf libdevice.so $(DEVICE_LIB)/$$name; done

-include $(DEVICE_OBJECTS:.o=.d)
