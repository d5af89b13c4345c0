# pipeann: see README.md for what it is. Two commands to start with:
#
#   make demo      install what is missing, build, and show it on real data
#   make check     install what is missing, build, and run every test
#   make check PG=17	on another PostgreSQL (16, 17, 18), in a Debian of its own: what it could
#			change, which is regress, pgtap and tap; make check-NAME PG=17: one suite
#   make deb       a Debian package of this checkout (scripts/deb.sh)
#   make all-versions GOAL=install	once for each PostgreSQL of the distribution's that is there
#   make bench     compare indexes (BENCH_ARGS=...); make bench-quick: in little
#
# Building and installing is PGXS's: make, make install, make installcheck,
# with PG_CONFIG=... for another server than the first in PATH. Both libraries are
# built and installed, pipeann and pipeann_servers (servers/); SERVERS=no leaves out
# the second one, which needs libpq.
# WERROR=1 makes warnings errors. PAUSE_POINTS=1 builds a library for tests, in
# which backends can be made to wait (src/base/pause.h), PLANTED_FAULTS=1 one that
# can be told to answer wrongly (src/base/pause.h). CASSERT=1 builds one with
# assertions, SANITIZE=1 one with AddressSanitizer and UBSan, which a server loads
# that scripts/sanitized.sh makes.

# Goals that are scripts. PGXS has a goal "check" of its own that only says
# that it does not work, so PGXS is not read when one of these is asked for.
SUITES = check-lint check-unit check-sanitize check-compile check-regress check-pgtap check-tap check-upgrade check-citus check-docs check-clients check-bench check-random check-first-steps check-docker
SCRIPTED = demo deps deb all-versions check bench bench-quick $(SUITES)

ifneq (,$(filter $(SCRIPTED),$(MAKECMDGOALS)))

.PHONY: $(SCRIPTED)

demo:
	@scripts/demo.sh $(DEMO_ARGS)

deps:
	@scripts/install-deps.sh

deb:
	@scripts/deb.sh

GOAL ?= install
all-versions:
	@for config in /usr/lib/postgresql/*/bin/pg_config; do \
		$(MAKE) clean PG_CONFIG=$$config && $(MAKE) PG_CONFIG=$$config && $(MAKE) $(GOAL) PG_CONFIG=$$config || exit 1; \
	done

bench:
	@bench/run $(BENCH_ARGS)

bench-quick:
	@bench/run --quick $(BENCH_ARGS)

ON_PG = $(if $(PG),scripts/with-postgres.sh $(PG))

check:
	@$(ON_PG) scripts/check.sh $(if $(PG),regress pgtap tap)

$(SUITES):
	@$(ON_PG) scripts/check.sh $(@:check-%=%)

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

OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*/*.c)))
OWN_HEADERS = $(sort $(wildcard src/*/*.h))
INCLUDES = -I$(srcdir)/src
LIBRARIES = -luring

REGRESS = $(patsubst test/sql/%.sql,%,$(sort $(wildcard test/sql/*.sql)))
REGRESS_OPTS = --inputdir=$(srcdir)/test --load-extension=vector --load-extension=pipeann

include src/build.mk

# The second library, which needs libpq.
ifneq (no,$(SERVERS))
.PHONY: servers-all servers-install servers-uninstall servers-clean
all: servers-all
install: servers-install
uninstall: servers-uninstall
clean: servers-clean
servers-all servers-install servers-uninstall servers-clean:
	@$(MAKE) -C servers $(@:servers-%=%) PG_CONFIG=$(PG_CONFIG)
endif

endif
