"""What is in the rows: kinds of columns with their values, and kinds of vectors.

Every value is an SQL expression of the row's number i, so that a script with thousands of
rows stays short, and shrinking rows is shrinking a range of numbers.
"""
from dataclasses import dataclass

# Helpers that scripts of differences begin with, too.
PRELUDE = """\
CREATE EXTENSION IF NOT EXISTS pipeann CASCADE;
CREATE EXTENSION IF NOT EXISTS citext;
CREATE EXTENSION IF NOT EXISTS pipeann_servers CASCADE;
CREATE SCHEMA rq;
CREATE COLLATION rq.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TYPE rq.mood AS ENUM ('low', 'middling', 'high', 'higher');
CREATE DOMAIN rq.small AS int CHECK (VALUE < 1000000);
CREATE DOMAIN rq.word AS text;
CREATE DOMAIN rq.label AS citext;
CREATE DOMAIN rq.marks AS int[];
CREATE FUNCTION rq.h(i bigint, salt int, n int) RETURNS int LANGUAGE sql IMMUTABLE AS
	'SELECT ((hashint8extended($1, $2) & 1048575) % $3)::int';
CREATE FUNCTION rq.cloud(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((rq.h(i * 4096 + j, salt, 2001) - 1000) / 1000.0)::vector FROM generate_series(1, dim) j';
CREATE FUNCTION rq.apart(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(CASE WHEN (j <= (dim + 1) / 2) = (i % 2 = 0) THEN 5 + rq.h(i * 4096 + j, salt, 2001) / 1000.0 ELSE 0 END)::vector
		FROM generate_series(1, dim) j';
CREATE FUNCTION rq.heaps(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(rq.h(i % 5, salt + j, 200) - 100 + rq.h(i * 4096 + j, salt, 2001) / 2000.0)::vector FROM generate_series(1, dim) j';
CREATE FUNCTION rq.whole(i bigint, salt int, dim int, n int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(rq.h(i * 4096 + j, salt, n))::vector FROM generate_series(1, dim) j';
CREATE FUNCTION rq.signs(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(CASE rq.h(i * 4096 + j, salt, 4) WHEN 0 THEN ''-0''::float4 WHEN 1 THEN 0 WHEN 2 THEN 1 ELSE 2 END)::vector
		FROM generate_series(1, dim) j';
CREATE FUNCTION rq.far(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((rq.h(i * 4096 + j, salt, 2001) - 1000) * (1 + rq.h(i, salt, 380)) / 1000.0)::vector FROM generate_series(1, dim) j';
CREATE FUNCTION rq.scales(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((rq.h(i * 4096 + j, salt, 2001) - 1000) * (10::float8 ^ (rq.h(i, salt, 77) - 41)))::vector FROM generate_series(1, dim) j';
CREATE FUNCTION rq.spikes(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((rq.h(i % 300 * 4096 + j, salt, 600) + rq.h(i * 4096 + j, salt + 5, 200)
			+ CASE rq.h(i * 4096 + j, salt + 6, 16) WHEN 0 THEN rq.h(i * 4096 + j, salt + 7, 6000) - 3000 ELSE 0 END) / 100.0)::vector
		FROM generate_series(1, dim) j';
CREATE FUNCTION rq.sets(i bigint, salt int, dim int) RETURNS vector LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg((rq.h(i % 400 * 4096 + j, salt, 1000) < 20 + 2 * (i % 400) AND rq.h(i * 4096 + j, salt + 5, 1000) < 300 + rq.h(i, salt + 6, 700)
			OR rq.h(i * 4096 + j, salt + 7, 100) = 0)::int)::vector FROM generate_series(1, dim) j';
CREATE FUNCTION rq.thin(v vector, i bigint, salt int) RETURNS sparsevec LANGUAGE sql IMMUTABLE AS
	'SELECT array_agg(CASE WHEN j <= 2 OR rq.h(i * 4096 + j, salt, 3) = 0 THEN x ELSE 0 END ORDER BY j)::vector::sparsevec
		FROM unnest(v::real[]) WITH ORDINALITY AS u(x, j)';
CREATE FUNCTION rq.even(i int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT i % 2 = 0';
CREATE FUNCTION rq.leaky(i int) RETURNS bool LANGUAGE plpgsql STABLE COST 1 AS 'BEGIN RETURN i % 3 <> 0; END';
CREATE FUNCTION rq.tight(i int) RETURNS bool LANGUAGE plpgsql IMMUTABLE LEAKPROOF AS 'BEGIN RETURN i % 5 <> 1; END';
CREATE FUNCTION rq.fickle(i int) RETURNS bool LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN i % 7 <> 2; END';
CREATE FUNCTION rq.folded(t text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower(t COLLATE "C")';
DO $$ BEGIN CREATE ROLE rq_a; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$;
DO $$ BEGIN CREATE ROLE rq_b; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$;
GRANT USAGE ON SCHEMA rq TO rq_a, rq_b;
"""

# Servers that are this one, for foreign partitions. Their sessions search exhaustively.
SERVERS = """\
DO $$
DECLARE
	name text;
BEGIN
	FOREACH name IN ARRAY '{rq_1,rq_2}'::text[] LOOP
		EXECUTE format('CREATE SERVER %I FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host %L, port %L, dbname %L, extensions ''vector'', options %L)',
			name, split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port'), current_database(),
			'-c pipeann.ef_search=10000 -c pipeann.max_scan_tuples=2147483647 -c search_path=q,rq,public');
		EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER %I', name);
		EXECUTE format('CREATE USER MAPPING FOR PUBLIC SERVER %I OPTIONS (user %L, password_required ''false'')', name, CURRENT_USER);
	END LOOP;
END
$$;
"""


@dataclass(frozen=True)
class Kind:
    """A type of a column; pool: its values as text, None for NULL."""
    name: str
    ddl: str
    pool: tuple
    family: str            # int float numeric time text array bool other
    cast: str = ""         # of literals, where that is not ddl
    key: bool = True       # whether a filter column may have it
    item: str = ""         # type of an array's elements

    @property
    def type(self):
        return self.cast or self.ddl

    def value(self, salt, spread):
        """The SQL expression for row i."""
        if self.name == "wide":
            return f"rq.h(i, {salt}, {spread})"
        picks = ", ".join("NULL" if p is None else quote(p) for p in self.pool)
        return f"(ARRAY[{picks}]::text[])[1 + rq.h(i, {salt}, {len(self.pool)})]::{self.type}"


def quote(text):
    return "'" + text.replace("'", "''") + "'"


WORDS = ("a", "A", "b", "B", "ab", "Ab", "AB", "zebra", "Zebra", "", "ä", "Äpfel", "straße", "STRASSE", "x y", "a%", None)
NUMBERS = ("0", "1", "2", "3", "5", "8", "-1", "-7", "100", None)
FLOATS = ("0", "-0", "1.5", "-2.25", "0.1", "1e30", "1e-30", "NaN", "Infinity", "-Infinity", "7", "3", None)
TIMES = ("2024-01-01 00:00:00", "2024-01-01 12:30:00", "2024-02-29 00:00:00", "1999-12-31 23:59:59", "infinity", "-infinity",
         "2024-06-01 00:00:00", None)
UUIDS = tuple(f"{i:08x}-0000-4000-8000-0000000000{i:02x}" for i in (0, 1, 2, 5, 9, 200)) + (None,)

KINDS = (
    Kind("bool", "bool", ("t", "f", "t", None), "bool"),
    Kind("int2", "int2", NUMBERS + ("32767", "-32768"), "int"),
    Kind("int4", "int4", NUMBERS + ("2147483647", "-2147483648"), "int"),
    Kind("int8", "int8", NUMBERS + ("9223372036854775807", "-9223372036854775808"), "int"),
    Kind("wide", "int4", tuple(str(17 * i) for i in range(20)), "int"),
    Kind("small", "rq.small", NUMBERS, "int"),
    Kind("float4", "float4", FLOATS, "float"),
    Kind("float8", "float8", FLOATS + ("1e300",), "float"),
    Kind("numeric", "numeric", ("0", "1", "1.0", "1.00", "-2.5", "1e-20", "12345678901234567890.5", "NaN", "Infinity", "-Infinity", None), "numeric"),
    Kind("date", "date", ("2024-01-01", "2024-02-29", "1999-12-31", "infinity", "-infinity", "2024-06-01", "0044-03-15 BC", None), "time"),
    Kind("timestamp", "timestamp", TIMES, "time"),
    Kind("timestamptz", "timestamptz", TIMES, "time"),
    Kind("text", "text", WORDS, "text"),
    Kind("ctext", 'text COLLATE "C"', WORDS, "text", "text"),
    Kind("icu", 'text COLLATE "de-x-icu"', WORDS, "text", "text"),
    Kind("nocase", "text COLLATE rq.nocase", WORDS, "text", "text"),
    Kind("varchar", "varchar(8)", WORDS, "text"),
    Kind("word", "rq.word", WORDS, "text"),
    Kind("citext", "citext", WORDS, "text"),
    Kind("label", "rq.label", WORDS, "text"),
    Kind("char", "char(5)", ("a", "a ", "b", "ab", "", "zebra", None), "text", key=False),
    Kind("uuid", "uuid", UUIDS, "other"),
    Kind("mood", "rq.mood", ("low", "middling", "high", "higher", None), "other"),
    Kind("ints", "int[]", ("{}", "{1}", "{1,2}", "{2,3,5}", "{NULL}", "{1,NULL}", "{7,7,7}", "{{1,2},{3,5}}", None), "array", item="int"),
    Kind("texts", "text[]", ("{}", "{a}", "{a,b}", "{A,ab}", "{NULL}", "{a,NULL}", '{""}', None), "array", item="text"),
    Kind("floats", "float8[]", ("{}", "{NaN}", "{0,-0}", "{1.5,2}", "{Infinity,NULL}", None), "array", item="float8"),
    Kind("moods", "rq.mood[]", ("{}", "{low}", "{low,high}", "{higher,NULL}", None), "array", item="rq.mood"),
    Kind("marks", "rq.marks", ("{}", "{1}", "{1,2}", "{2,3,5}", "{1,NULL}", None), "array", item="int"),
    Kind("json", "jsonb", ('{"a": "x"}', '{"a": "y", "b": 1}', '{"b": 2}', '{"a": null}', "[]", None), "json", key=False),
)
KIND = {kind.name: kind for kind in KINDS}

# Vectors of row i by table: {salt} and {dim} are the table's.
VECTORS = {
    "cloud": "rq.cloud(i, {salt}, {dim})",
    "apart": "rq.apart(i, {salt}, {dim})",
    "heaps": "rq.heaps(i, {salt}, {dim})",
    "few": "rq.cloud(rq.h(i, {salt}, 9), {salt}, {dim})",
    "twice": "rq.cloud(i / 2, {salt}, {dim})",
    "equal": "rq.cloud(1, {salt}, {dim})",
    "direction": "array_fill((rq.h(i, {salt}, 1000) + 1) / 100.0, ARRAY[{dim}])::vector",
    "whole": "rq.whole(i, {salt}, {dim}, 250)",
    "tiny": "rq.whole(i, {salt}, {dim}, 3)",
    "signs": "rq.signs(i, {salt}, {dim})",
    "far": "rq.far(i, {salt}, {dim})",
    # lengths from 1e-38 to 1e38, which no other type has
    "scales": "rq.scales(i, {salt}, {dim})",
    # few large differences beside many small ones: the nearest by L1 are not those by L2
    "spikes": "rq.spikes(i, {salt}, {dim})",
    # sets of all sizes: the nearest by Jaccard are not those by Hamming
    "sets": "rq.sets(i, {salt}, {dim})",
}


def vector_of(kind, salt, dim, gaps, type_):
    """The SQL expression of row i's vector; gaps: with NULL and zero vectors among them. Bits are its signs; of a sparse one two elements of three are 0."""
    expression = VECTORS[kind].format(salt=salt, dim=dim)
    if gaps:
        expression = (f"CASE rq.h(i, {salt + 1}, {gaps}) WHEN 0 THEN NULL WHEN 1 THEN array_fill(0, ARRAY[{dim}])::vector"
                      f" ELSE {expression} END")
    if type_ == "bit":
        expression = f"binary_quantize({expression})::bit({dim})"
    if type_ == "sparsevec":
        expression = f"rq.thin({expression}, i, {salt + 4})"
    return expression
