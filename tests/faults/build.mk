# build.mk: the library that makes calls of the system fail (faults.c here), for tests/lua/test_faults.lua.
FAULTS := $(BUILD)/tests/faults/faults.so

$(FAULTS): tests/faults/faults.c
	@mkdir -p $(@D); echo "LD $@"
	$(Q)$(CC) $(STRICT) -O1 -fPIC -shared -o $@ $< -ldl
