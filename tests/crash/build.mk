# build.mk: `make crash`: the states that a power failure may leave of a save (main.c here).
CRASH_CALLS := open openat write pwrite ftruncate fsync mkdir mkdirat rename renameat renameat2 unlink unlinkat
CRASH_WRAP  := $(foreach call,$(CRASH_CALLS),-Wl,--wrap=$(call))
CRASH_BIN   := $(BUILD)/tests/crash/crash

$(CRASH_BIN): $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/crash/*.c)) $(BUILD)/libruntime.a
	@mkdir -p $(@D); echo "LD $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(CRASH_WRAP) -o $@ $^ -ljansson -lz -lm -lpthread

crash: $(CRASH_BIN)
	$(Q)$(CRASH_BIN) all

.PHONY: crash
