# What the Makefiles of both libraries share. Before it is read they set MODULE_big,
# OBJS, OWN_HEADERS, INCLUDES and LIBRARIES. The variables that options are given by
# are told in the Makefile at the top.

COMMA = ,

# -isystem: PostgreSQL's own headers do not pass -Wextra.
# Assert() of PostgreSQL needs nothing that a server without assertions lacks.
LIBRARY_VERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(EXTENSION).control)
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server) $(INCLUDES) -DPIPEANN_VERSION='"$(LIBRARY_VERSION)"' $(if $(CASSERT),-DUSE_ASSERT_CHECKING=1)
PG_CFLAGS = -fno-math-errno -Wextra -Wno-unused-parameter -Wno-missing-field-initializers $(if $(WERROR),-Werror) $(if $(PAUSE_POINTS),-DPIPEANN_PAUSE_POINTS) $(if $(PLANTED_FAULTS),-DPIPEANN_PLANTED_FAULTS)
SANITIZE_FLAGS = $(if $(SANITIZE),-fsanitize=address$(COMMA)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
PG_CFLAGS += $(SANITIZE_FLAGS)
SHLIB_LINK = $(LIBRARIES) $(SANITIZE_FLAGS)

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

$(OBJS): $(OWN_HEADERS) $(BUILT_WITH) $(EXTENSION).control Makefile $(filter %/build.mk,$(MAKEFILE_LIST))
