# dslaunch: one Makefile, no recursion.  `make help` lists the targets.  V=1 shows the commands,
# DEV=1 makes warnings errors, STATIC=1 links dslaunch statically but for libc.
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all
SHELL := /bin/bash
B ?= build
CC = gcc
Q = $(if $(V),,@)
say = $(if $(V),,@printf '  %-4s %s\n' '$(1)' '$(2)')

WARN = -Wall -Wextra -Wshadow -Wundef -Wvla -Wformat=2 -Wcast-qual -Wstrict-prototypes \
       -Wmissing-prototypes -Wswitch-enum -fno-common $(if $(DEV),-Werror)
# No contraction and no reassociation: the bits of a run must not depend on the compiler's mood.
OPT ?= -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math
VERSION := 0.1.0
CFLAGS_ALL = -DDS_VERSION='"$(VERSION)"' -std=gnu17 -D_GNU_SOURCE -g $(OPT) $(WARN) $(SAN) -I. -I$(B) -pthread $(EXTRA) $(CFLAGS)
CONV = -Wconversion -Wno-sign-conversion
LD = $(CC) $(SAN) -pthread $(LDFLAGS)

BASE_SRC    := $(wildcard common/base/*.c)
COMMON_SRC  := $(BASE_SRC) $(wildcard common/spec/*.c common/shape/*.c common/link/*.c)
KERNEL_SRC  := $(wildcard kernels/cpu/*.c)
WORKER_SRC  := $(wildcard worker/*.c worker/*/*.c)
PROTO       := $(wildcard launcher/wire/*.proto)
PROTO_C     := $(PROTO:%.proto=$(B)/%.pb-c.c)
LAUNCH_LIB  := $(wildcard launcher/plan/*.c launcher/rdzv/*.c launcher/super/*.c launcher/wire/*.c \
                 launcher/boot/*.c launcher/record/*.c \
                 launcher/control/*.c launcher/watch/*.c launcher/doc/*.c)
CMD_SRC     := $(wildcard launcher/*.c)
AGENT_SRC   := $(wildcard launcher/agent/*.c launcher/agent/*/*.c)

obj = $(patsubst %.c,$(B)/%.o,$(filter-out $(B)/%,$(1))) $(patsubst $(B)/%.c,$(B)/%.o,$(filter $(B)/%,$(1)))
no_main = $(filter-out %/main.o,$(1))

COMMON_O  := $(call obj,$(COMMON_SRC))
GROUND_O  := $(call obj,$(BASE_SRC) $(wildcard common/link/*.c))
KERNEL_O  := $(call obj,$(KERNEL_SRC))
WORKER_O  := $(call obj,$(WORKER_SRC))
PROTO_O   := $(call obj,$(PROTO_C))
LAUNCH_O  := $(call obj,$(LAUNCH_LIB))
CMD_O     := $(call obj,$(CMD_SRC))
AGENT_O   := $(call obj,$(AGENT_SRC))

# Libraries.  dsagent and dsworker travel to hosts where nothing is installed: all but libc and
# libm is linked statically.
static = -l:lib$(1).a
S_YAML = $(call static,yaml)
S_JANSSON = $(call static,jansson)
S_XXH = $(call static,xxhash)
S_CRYPTO = $(call static,crypto)
S_PROTO = $(call static,protobuf-c)
S_UV = $(call static,uv_a)
S_BLAS = $(call static,openblas)
WORKER_LIBS = $(S_YAML) $(S_JANSSON) $(S_XXH) $(S_CRYPTO) $(S_BLAS) -lm
AGENT_LIBS = $(S_UV) $(S_PROTO) $(S_XXH) -ldl -lrt -lm
TEST_LIBS = $(S_YAML) $(S_JANSSON) $(S_CRYPTO) $(S_BLAS) $(AGENT_LIBS)
ifdef STATIC
LAUNCH_LIBS = $(S_YAML) $(S_JANSSON) $(S_CRYPTO) $(AGENT_LIBS)
else
LAUNCH_LIBS = -luv -lyaml -lprotobuf-c -ljansson -lcrypto -lxxhash -lm
endif

PROGRAMS := $(if $(wildcard launcher/main.c),$(B)/dslaunch) $(if $(wildcard launcher/agent/main.c),$(B)/dsagent) \
            $(if $(wildcard worker/main.c),$(B)/dsworker)
all: $(PROGRAMS) ## the programs

$(B)/dslaunch: $(CMD_O) $(LAUNCH_O) $(PROTO_O) $(COMMON_O)
	$(call say,LD,$@)
	$(Q)$(LD) -o $@ $^ $(LAUNCH_LIBS)
$(B)/dsagent: $(AGENT_O) $(filter $(B)/launcher/wire/% $(B)/launcher/boot/paths.o,$(LAUNCH_O)) $(PROTO_O) $(GROUND_O)
	$(call say,LD,$@)
	$(Q)$(LD) -static-libgcc -o $@ $^ $(AGENT_LIBS)
$(B)/dsworker: $(WORKER_O) $(KERNEL_O) $(COMMON_O)
	$(call say,LD,$@)
	$(Q)$(LD) -static-libgcc -o $@ $^ $(WORKER_LIBS)

$(B)/launcher/%.o $(B)/common/%.o: CFLAGS_ALL += $(CONV)
$(B)/launcher/wire/%.pb-c.o: CFLAGS_ALL += -w
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<
$(B)/launcher/wire/%.pb-c.o: $(B)/launcher/wire/%.pb-c.c
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<
# Generated headers lie under $(B) at the same path; sources include "launcher/wire/x.pb-c.h".
$(B)/launcher/wire/%.pb-c.c $(B)/launcher/wire/%.pb-c.h &: launcher/wire/%.proto
	@mkdir -p $(@D)
	$(call say,PB,$<)
	$(Q)protoc-c --c_out=$(B) $<
$(LAUNCH_O) $(AGENT_O) $(CMD_O): | $(PROTO:%.proto=$(B)/%.pb-c.h)
.SECONDARY:

# Unit tests: tests/<room>/test_<module>.c is one program, linked with everything it may test.
UNIT_SRC := $(wildcard tests/unit/test_*.c tests/kernels/test_*.c)
UNIT     := $(UNIT_SRC:%.c=$(B)/%)
TESTHELP_O := $(call obj,$(filter-out $(UNIT_SRC),$(wildcard tests/unit/*.c tests/kernels/*.c)))
TESTLIB_O := $(call no_main,$(LAUNCH_O) $(AGENT_O) $(WORKER_O)) $(KERNEL_O) $(PROTO_O) $(COMMON_O) $(TESTHELP_O)
$(B)/libtest.a: $(TESTLIB_O)
	$(Q)rm -f $@; ar rcs $@ $^
$(UNIT): $(B)/tests/%: $(B)/tests/%.o $(B)/libtest.a
	$(call say,LD,$@)
	$(Q)$(LD) -o $@ $< $(B)/libtest.a -lcmocka $(TEST_LIBS)
$(B)/tests/%.o: | $(PROTO:%.proto=$(B)/%.pb-c.h)
unit: $(UNIT) ## build the unit tests

golden: $(B)/tests/unit/test_spec_golden ## write tests/golden anew, to be looked at in a diff
	$(Q)UPDATE_GOLDEN=1 $<

# What the build and the tests need is installed first, by name, where it is missing.
NEED = contrib/debian/need
demo: ## install what the build needs, build, run the main job and judge it
	$(Q)$(NEED) build
	$(Q)$(MAKE) all
	$(Q)tests/demo/demo.sh

docs: $(B)/dslaunch ## write the generated documents anew: docs/spec.*, docs/man, contrib/completion
	$(Q)$< doc .

# One summary over everything: cmocka and bats and our scripts all speak TAP.
JOBS ?= 2
PLANT = $(B)/plant
ASAN = $(B)/asan
# What the shipped dsagent needs of its host is not asked of the sanitizers' one.
ASAN_UNIT = $(filter-out %/test_agent_elf,$(UNIT:$(B)/%=$(ASAN)/%))
SAN_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=undefined
LINT := $(wildcard tests/lint/*.t)
CLI  := $(wildcard tests/cli/*.bats)
PROVE = tests/tools/prove.sh
check: ## install what the tests need and run them all
	$(Q)$(NEED) test
	$(Q)$(MAKE) -j$(JOBS) DEV=1 all unit
	$(Q)$(MAKE) -j$(JOBS) B=$(PLANT) EXTRA=-DDS_PLANT $(PLANT)/dsworker
	$(Q)$(MAKE) -j$(JOBS) B=$(ASAN) SAN="$(SAN_FLAGS)" OPT=-O1 all unit
	$(Q)$(PROVE) $(B) $(LINT) $(UNIT) $(CLI) tests/parity/layouts.py tests/parity/reshard.py \
	    tests/chaos/kills.py tests/chaos/culprit.py tests/parity/asan.sh $(ASAN_UNIT)
check-long: ## what does not fit into check: 100 kills, more pairs, the demo and its negative control, the package
	$(Q)$(NEED) long
	$(Q)$(MAKE) -j$(JOBS) all
	$(Q)$(MAKE) -j$(JOBS) B=$(PLANT) EXTRA=-DDS_PLANT $(PLANT)/dsworker
	$(Q)DSLAUNCH_KILLS=100 DSLAUNCH_PAIRS=120 $(PROVE) $(B) tests/chaos/kills.py \
	    tests/parity/reshard.py tests/demo/demo.t tests/long/deb.sh
asan: ## the programs and unit tests under address and undefined-behaviour sanitizers
	$(Q)$(MAKE) -j$(JOBS) B=$(ASAN) SAN="$(SAN_FLAGS)" OPT=-O1 all unit
	$(Q)$(PROVE) $(ASAN) $(ASAN_UNIT)
tidy: ## clang-tidy, and gcc's analyzer on the pure rooms
	$(Q)clang-tidy --quiet $(COMMON_SRC) $(LAUNCH_LIB) $(CMD_SRC) $(AGENT_SRC) $(WORKER_SRC) $(KERNEL_SRC) -- -std=gnu17 -D_GNU_SOURCE -I. -I$(B) -DDS_VERSION='""'
	$(Q)for f in $(wildcard common/*/*.c launcher/plan/*.c launcher/rdzv/*.c launcher/super/*.c); do \
	    $(CC) -std=gnu17 -D_GNU_SOURCE -I. -O1 -fanalyzer -c $$f -o /dev/null || exit 1; done
PREFIX ?= /usr/local
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
SHARE = $(DESTDIR)$(PREFIX)/share
DOCDIR = $(SHARE)/doc/dslaunch
install: all ## programs, manual, completions and examples into DESTDIR/PREFIX (PREFIX=/usr/local)
	$(Q)install -D -t $(DESTDIR)$(PREFIX)/bin $(PROGRAMS)
	$(Q)install -m 644 -D -t $(SHARE)/man/man1 docs/man/dslaunch.1
	$(Q)install -m 644 -D -t $(SHARE)/man/man5 docs/man/dslaunch.yaml.5
	$(Q)install -m 644 -D contrib/completion/dslaunch.bash $(SHARE)/bash-completion/completions/dslaunch
	$(Q)install -m 644 -D -t $(DESTDIR)$(ZSHDIR) contrib/completion/_dslaunch
	$(Q)install -m 644 -D -t $(DOCDIR) LICENSE docs/spec.md docs/spec.schema.json
	$(Q)install -d $(DOCDIR)/examples
	$(Q)for f in configs/*.yaml; do \
	    sed '1s|=../docs/|=../|' $$f | install -m 644 /dev/stdin $(DOCDIR)/examples/$${f##*/} || exit 1; done
deb: ## a Debian package
	$(Q)+contrib/debian/deb.sh $(B)
config: ## what the build found
	@printf 'version          %s\nCC               %s\n' '$(VERSION)' "$$($(CC) --version | head -1)"
	@for l in libuv yaml-0.1 libprotobuf-c jansson libcrypto libxxhash; do \
	    printf '%-16s %s\n' $$l "$$(pkg-config --modversion $$l 2>/dev/null || echo '?')"; done
	@printf 'nvcc             %s\n' 'not asked: this version has no CUDA worker'

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 16
clean: ## remove the build
	$(Q)rm -rf $(B)
fmt: ## format the sources
	$(Q)git ls-files '*.c' '*.h' '*.cu' | xargs clang-format -i
fmt-check:
	$(Q)git ls-files '*.c' '*.h' '*.cu' | xargs clang-format --dry-run -Werror
.PHONY: all unit golden docs demo check check-long asan tidy install deb config help clean fmt fmt-check

-include $(shell find $(B) -name '*.d' 2>/dev/null)
