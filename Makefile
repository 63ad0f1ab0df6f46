# make demo      installs what is missing, builds, trains on real digits
# make           out/gagen            make test      all tests but the long ones      make test-all
# make docs      docs/COMMANDS.md; in out: the manual page, completions, annotations for editors
# make install   to PREFIX (/usr/local) below DESTDIR; make uninstall removes the same files
# make dist      out/gagen-VERSION.tar.gz: the sources that git tracks
# make bench     times of updates beside PyTorch's and llm.c's (bench/training.lua)
# make bench-gpu rates of models on a GPU beside PyTorch's, of kernels beside floors and cuBLASLt (bench/gpu.lua)
# make bench-products          times of products beside OpenBLAS's and oneDNN's (bench/products.lua)
# make clean     removes gagen and what it was built from; programs in out stay
# CC, CFLAGS and LDFLAGS are honoured; BUILD and GAGEN choose another place for what is made.
CFLAGS   ?= -O2
BUILD    ?= out/.build
JOBS     ?= 2
GAGEN    ?= out/gagen
SHELL    := /bin/sh
Q        ?= @

PKG      := pkg-config
LUA_LIB  := $(shell $(PKG) --variable=libdir lua5.4 2>/dev/null)
STRICT   := -std=gnu11 -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes
INCLUDES := -Igen/host -Iruntime $(shell $(PKG) --cflags lua5.4 jansson zlib 2>/dev/null)
# Lua is linked statically: the version the tests saw is the version that runs
LIBS     := -L$(LUA_LIB) -l:liblua5.4.a $(shell $(PKG) --libs jansson zlib 2>/dev/null) -lm -ldl -lpthread -lrt

HOST     := $(filter-out gen/host/main.c gen/host/embed.c,$(wildcard gen/host/*.c))
RUNTIME  := $(filter-out runtime/ranks/comm_mpi.c runtime/ranks/mpi_exchange.c runtime/ranks/comm_nccl.c,$(wildcard runtime/*/*.c))
UNIT     := $(wildcard tests/unit/test_*.c)
EMBEDDED := $(shell LC_ALL=C; export LC_ALL; \
              { find gen -name '*.lua'; find templates -type f; find runtime -name '*.[ch]'; \
                ls specs/*.lua; } | sort)
object    = $(patsubst %.c,$(BUILD)/%.o,$(1))

all: $(GAGEN)

# installing changes what pkg-config says, so these start make again; tests run outside of the make that builds at
# once what they need
demo test test-all:
	@tools/setup
	@$(MAKE) --no-print-directory -j$(JOBS) for-$@
	@$(MAKE) --no-print-directory run-$@

for-demo: $(GAGEN)

run-demo: $(GAGEN)
	@tools/demo

$(GAGEN): $(call object,gen/host/main.c) $(BUILD)/libgagen.a $(BUILD)/libruntime.a
	@mkdir -p $(@D); echo "LD $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(BUILD)/libgagen.a: $(call object,$(HOST)) $(BUILD)/embedded_files.o
$(BUILD)/libruntime.a: $(call object,$(RUNTIME))
$(BUILD)/lib%.a:
	@echo "AR $@"; rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/%.o: %.c
	@mkdir -p $(@D); echo "CC $<"
	$(Q)$(CC) $(STRICT) $(INCLUDES) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# programs of tests share the cores with other tests
$(call object,runtime/base/team.c): CPPFLAGS += -DGA_SPIN=20

# the engines of ranks, which programs of tests link
ENGINES := $(wildcard runtime/ranks/comm_nccl.c $(if $(shell $(PKG) --exists ompi-c && echo yes),runtime/ranks/*mpi*.c))
$(call object,$(filter %mpi.c %mpi_exchange.c,$(ENGINES))): INCLUDES += $(shell $(PKG) --cflags ompi-c 2>/dev/null)

# -- the files in the binary, gagen's own Lua compiled: rewritten when one changes, comes or goes
$(BUILD)/embed: gen/host/embed.c
	@mkdir -p $(@D); echo "CC $<"
	$(Q)$(CC) $(STRICT) $(INCLUDES) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< $(LIBS)

$(BUILD)/embedded.list: FORCE
	@mkdir -p $(@D); echo '$(EMBEDDED)' | cmp -s - $@ || echo '$(EMBEDDED)' > $@

$(BUILD)/embedded_files.c: $(BUILD)/embed $(BUILD)/embedded.list $(EMBEDDED)
	@echo "EMBED $@"
	$(Q)$(BUILD)/embed $(EMBEDDED) > $@.new && mv $@.new $@

$(BUILD)/embedded_files.o: $(BUILD)/embedded_files.c
	$(Q)$(CC) $(STRICT) $(INCLUDES) -c -o $@ $<

# -- tests
include tests/device/build.mk
include tests/crash/build.mk
include tests/faults/build.mk
NUMERIC := $(call object,$(addprefix tests/numeric/,main.c differences.c convolution_sums.c))
$(NUMERIC): INCLUDES += -I.

for-test for-test-all: $(GAGEN) $(BUILD)/tests/run $(BUILD)/bench/host $(BUILD)/bench/cublaslt $(CRASH_BIN) $(FAULTS) $(NUMERIC) $(call object,$(ENGINES)) device

# all of them in one process more than JOBS says, since tests also wait; those of a PATTERN in one
run-test: for-test
	$(Q)rm -rf $(BUILD)/tests/tmp
	$(Q)mkdir -p $(BUILD)/tests/store && find $(BUILD)/tests/store -mindepth 1 -maxdepth 1 -atime +7 -exec rm -rf {} +
	$(Q)$(BUILD)/tests/run $(if $(PATTERN),'$(PATTERN)',-j$$(( $(JOBS) + 1 )))

# then those of make test for each other profile of this processor's kind: tests/lua/programs.lua builds their programs
# for it
MARCHES := $(if $(filter x86_64,$(shell uname -m)),generic x86-64-v3 x86-64-v4 x86-64-v4-bf16 sapphirerapids,generic)
OTHERS  := $(if $(filter x86_64,$(shell uname -m)),aarch64,x86-64)
run-test-all: export GAGEN_TEST_ALL := 1
run-test-all: run-test
	$(Q)own=$$($(GAGEN) doctor | sed -n 's/.*profile //p'); status=0; for march in $(MARCHES); do \
	    [ $$march != "$$own" ] || continue; echo "programs of tests for $$march"; \
	    env -u GAGEN_TEST_ALL GAGEN_TEST_MARCH=$$march $(MAKE) --no-print-directory run-test || status=1; done; \
	echo "NOT RUN: programs of tests for $(OTHERS): needs a compiler for it"; exit $$status

# rules of gradients and lines of the boundary made wrong: each must be noticed
mutants: export GAGEN_TEST_ALL := 1
mutants:
	$(Q)$(MAKE) --no-print-directory run-test PATTERN='*mutants: *'

$(BUILD)/tests/groups.h: FORCE
	@mkdir -p $(@D)
	@for f in $(patsubst test_%,%,$(basename $(notdir $(UNIT)))); do echo "GROUP($$f)"; done > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

TEST_FLAGS := -Itests -I$(BUILD)/tests -DGA_TEST_BUILD='"$(BUILD)"' -DGA_TEST_FOLDER='"$(BUILD)/tests/tmp"' -DGA_TEST_GAGEN='"$(GAGEN)"'
$(BUILD)/tests/%.o: INCLUDES += $(TEST_FLAGS)
$(call object,tests/main.c): $(BUILD)/tests/groups.h

$(BUILD)/tests/run: $(call object,tests/main.c tests/lua_tests.c tests/workers.c $(UNIT)) $(BUILD)/libgagen.a $(BUILD)/libruntime.a
	@echo "LD $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -Wl,--wrap=_cmocka_run_group_tests -o $@ $^ $(LIBS) $(shell $(PKG) --libs cmocka)

# -- what is made from gagen's own lists
PAGES := out/gagen.1 out/gagen.d.lua out/gagen.bash out/gagen.zsh out/gagen.fish
out/gagen.1: PAGE := --man
out/gagen.d.lua: PAGE := --annotations
out/gagen.bash out/gagen.zsh out/gagen.fish: PAGE = --completion $(patsubst .%,%,$(suffix $@))
$(PAGES): $(GAGEN)
	$(Q)mkdir -p out; $(GAGEN) help $(PAGE) > $@.new && mv $@.new $@

docs: $(PAGES)
	$(Q)$(GAGEN) help --markdown > out/COMMANDS.md && mv out/COMMANDS.md docs/COMMANDS.md
	@echo "docs/COMMANDS.md $(PAGES)"

# -- installation: each line of INSTALL is a file and its place below PREFIX
PREFIX  ?= /usr/local
PLACE    = $(DESTDIR)$(PREFIX)
INSTALL := $(GAGEN) bin/gagen \
    out/gagen.1 share/man/man1/gagen.1 \
    out/gagen.bash share/bash-completion/completions/gagen \
    out/gagen.zsh share/zsh/site-functions/_gagen \
    out/gagen.fish share/fish/vendor_completions.d/gagen.fish \
    out/gagen.d.lua share/gagen/gagen.d.lua

install: $(GAGEN) $(PAGES)
	$(Q)set -e; set -- $(INSTALL); while [ $$# -gt 0 ]; do \
	    mode=644; [ "$$2" != bin/gagen ] || mode=755; \
	    install -D -m $$mode "$$1" "$(PLACE)/$$2"; echo "$(PLACE)/$$2"; shift 2; done

uninstall:
	$(Q)set -- $(INSTALL); while [ $$# -gt 0 ]; do rm -f "$(PLACE)/$$2"; shift 2; done
	$(Q)[ ! -d "$(PLACE)/share/gagen" ] || rmdir "$(PLACE)/share/gagen"

# the same sources give the same bytes: order, owner and time of the files are fixed
VERSION := $(shell sed -n 's/^.define GA_VERSION "\(.*\)"/\1/p' gen/host/host.h)
DIST     = out/gagen-$(VERSION).tar.gz
dist:
	@git ls-files --error-unmatch Makefile >/dev/null 2>&1 || \
	    { echo "make dist: no git checkout here, expected one: git lists the sources" >&2; exit 1; }
	$(Q)mkdir -p out && git ls-files -z > out/dist.list
	$(Q)tar -c --null -T out/dist.list --sort=name --owner=0 --group=0 --numeric-owner \
	    --mtime=@$$(git log -1 --format=%ct) --transform 's,^,gagen-$(VERSION)/,' -f out/dist.tar
	$(Q)gzip -9n < out/dist.tar > $(DIST).new && mv $(DIST).new $(DIST) && rm out/dist.tar out/dist.list
	@echo "$(DIST)"

# with a GPU: the CUDA target on the real libraries; without one it says NOT RUN
gpu-check:
	$(Q)BUILD=$(BUILD) GAGEN=$(GAGEN) tools/gpu-check

# the programs of another commit and of the working tree compute the same bits: COMMIT=..., PATTERN=...
same-bits:
	$(Q)tests/bits/same-bits $(if $(PATTERN),--pattern '$(PATTERN)') $(COMMIT)

# times of updates beside those of PyTorch and llm.c: bench/training.lua has the options
$(BUILD)/bench/host: $(call object,bench/host.c) $(BUILD)/libgagen.a $(BUILD)/libruntime.a
	@mkdir -p $(@D); echo "LD $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

OUT ?= out/bench
bench: $(GAGEN) $(BUILD)/bench/host
	$(Q)$(BUILD)/bench/host bench/data.lua $(OUT)/data
	$(Q)GAGEN=$(GAGEN) OUT=$(OUT) $(BUILD)/bench/host bench/training.lua

bench-products: $(GAGEN) $(BUILD)/bench/host
	$(Q)GAGEN=$(GAGEN) OUT=$(OUT) $(BUILD)/bench/host bench/products.lua

# on a machine with a GPU: bench/gpu.lua has the options
$(BUILD)/bench/cublaslt: $(call object,bench/cublaslt.c) $(BUILD)/libruntime.a
	@mkdir -p $(@D); echo "LD $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

bench-gpu: OUT := $(if $(filter file,$(origin OUT)),out/bench-gpu,$(OUT))
bench-gpu: $(GAGEN) $(BUILD)/bench/host $(BUILD)/bench/cublaslt
	$(Q)GAGEN=$(GAGEN) OUT=$(OUT) CUBLASLT=$(BUILD)/bench/cublaslt HOST=$(BUILD)/bench/host \
	    $(BUILD)/bench/host bench/gpu.lua

clean:
	rm -rf $(BUILD) $(GAGEN)

FORCE:
.PHONY: mutants same-bits bench bench-products bench-gpu all docs install uninstall dist demo test test-all for-demo for-test for-test-all gpu-check run-demo run-test run-test-all clean FORCE
.DELETE_ON_ERROR:

-include $(shell find $(BUILD) \( -path '*/tests/tmp' -o -path '*/tests/worker*' \) -prune -o -name '*.d' -type f -print 2>/dev/null)
