# pipeann: see README.md for what it is. Two commands to start with:
#
#   make demo      install what is missing, build, and show it on real data
#   make check     install what is missing, build, and run every test
#   make bench     compare indexes (BENCH_ARGS=...); make bench-quick: in little
#
# Building and installing is PGXS's: make, make install, make installcheck,
# with PG_CONFIG=... for another server than the first in PATH.
# WERROR=1 makes warnings errors. PAUSE_POINTS=1 builds a library for tests, in
# which backends can be made to wait (src/base/pause.h), PLANTED_FAULTS=1 one that
# can be told to answer wrongly (src/base/planted.h). CASSERT=1 builds one with
# assertions, SANITIZE=1 one with AddressSanitizer and UBSan, which a server loads
# that scripts/sanitized.sh makes.

# Goals that are scripts. PGXS has a goal "check" of its own that only says
# that it does not work, so PGXS is not read when one of these is asked for.
SUITES = check-lint check-unit check-sanitize check-compile check-regress check-pgtap check-tap check-upgrade check-citus check-docs check-bench check-random
SCRIPTED = demo deps check bench bench-quick $(SUITES)

ifneq (,$(filter $(SCRIPTED),$(MAKECMDGOALS)))

.PHONY: $(SCRIPTED)

demo:
	@scripts/demo.sh $(DEMO_ARGS)

deps:
	@scripts/install-deps.sh

bench:
	@bench/run $(BENCH_ARGS)

bench-quick:
	@bench/run --quick $(BENCH_ARGS)

check:
	@scripts/check.sh

$(SUITES):
	@scripts/check.sh $(@:check-%=%)

# Goals of PGXS named beside these.
OTHERS = $(sort $(filter-out $(SCRIPTED),$(MAKECMDGOALS)))
ifneq (,$(OTHERS))
.PHONY: $(OTHERS)
$(OTHERS):
	@$(MAKE) $@
$(filter $(SCRIPTED),$(MAKECMDGOALS)): $(OTHERS)
endif

else

MODULE_big = pipeann
EXTENSION = pipeann
DATA = $(wildcard sql/pipeann--*.sql)
PGFILEDESC = "pipeann - approximate nearest-neighbour index on disk"

COMMA = ,
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*/*.c)))

# -isystem: PostgreSQL's own headers do not pass -Wextra.
# Assert() of PostgreSQL needs nothing that a server without assertions lacks.
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server) -isystem $(libpq_srcdir) -I$(srcdir)/src $(if $(CASSERT),-DUSE_ASSERT_CHECKING=1)
PG_CFLAGS = -fno-math-errno -Wextra -Wno-unused-parameter -Wno-missing-field-initializers $(if $(WERROR),-Werror) $(if $(PAUSE_POINTS),-DPIPEANN_PAUSE_POINTS) $(if $(PLANTED_FAULTS),-DPIPEANN_PLANTED_FAULTS)
SANITIZE_FLAGS = $(if $(SANITIZE),-fsanitize=address$(COMMA)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
PG_CFLAGS += $(SANITIZE_FLAGS)
SHLIB_LINK = -luring $(libpq) $(SANITIZE_FLAGS)

REGRESS = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=$(srcdir)/test --load-extension=vector --load-extension=pipeann

# No bitcode: the server's JIT inlines functions of expressions, and an index
# access method has none worth it.
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# What was built with other options is built again.
BUILT_WITH = build/options
OPTIONS = $(if $(CASSERT),assertions) $(if $(PAUSE_POINTS),pauses) $(if $(PLANTED_FAULTS),faults) $(if $(SANITIZE),sanitizers)
$(shell mkdir -p build; echo '$(OPTIONS)' | cmp -s - $(BUILT_WITH) || echo '$(OPTIONS)' >$(BUILT_WITH))

$(OBJS): $(sort $(wildcard src/*.h src/*/*.h)) $(BUILT_WITH) Makefile

endif
