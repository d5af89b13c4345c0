# ALTER EXTENSION pipeann UPDATE, from each state that the script of 0.1.0 had before there
# was 1.0: ends with the same objects as CREATE EXTENSION, and indexes in place. The server
# is a copy, as scripts are read from where its programs are.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

my @scripts = sort glob(($ENV{PIPEANN_OLDER_SQL} || '') . '/*.sql');
plan skip_all => 'no scripts of 0.1.0: it takes a checkout with its history' if !@scripts;

my $root = PostgreSQL::Test::Utils::tempdir();
my %dir = map { chomp(my $dir = `pg_config --$_`); ($_ => $dir) } qw(bindir pkglibdir sharedir);

for my $dir (values %dir)
{
	system_or_bail('mkdir', '-p', "$root$dir");
	system_or_bail('cp', '-R', "$dir/.", "$root$dir");
}

# libraries that programs find beside themselves
$ENV{LD_LIBRARY_PATH} = join ':', "$dir{bindir}/../lib", $ENV{LD_LIBRARY_PATH} // ();
my $node = PostgreSQL::Test::Cluster->new('updates', install_path => "$root$dir{bindir}/..");

$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pipeann'\nautovacuum = off\nfsync = off");
$node->start;

# All that belongs to the extension: definitions, comments, who may do what.
my $OBJECTS = <<'END';
WITH members AS (
	SELECT classid, objid FROM pg_depend
	WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pipeann')),
families AS (
	SELECT f.oid, f.opfname FROM pg_opfamily f JOIN pg_am a ON a.oid = f.opfmethod WHERE a.amname = 'pipeann')
SELECT array_to_string(ARRAY[what, a, b], ' | ', 'NULL') FROM (
	SELECT pg_describe_object(classid, objid, 0), obj_description(objid, classid::regclass::name), p.initprivs::text
		FROM members LEFT JOIN pg_init_privs p ON p.classoid = classid AND p.objoid = objid
	UNION ALL
	SELECT pg_get_functiondef(oid), proacl::text, proowner::regrole::text
		FROM pg_proc WHERE oid IN (SELECT objid FROM members WHERE classid = 'pg_proc'::regclass)
	UNION ALL
	SELECT pg_get_viewdef(oid), relacl::text, relowner::regrole::text
		FROM pg_class WHERE oid IN (SELECT objid FROM members WHERE classid = 'pg_class'::regclass)
	UNION ALL
	SELECT amname, amhandler::text, amtype::text FROM pg_am WHERE oid IN (SELECT objid FROM members WHERE classid = 'pg_am'::regclass)
	UNION ALL
	SELECT format('class %s of %s', opcname, opcnamespace::regnamespace), format('%s in %s', opcintype::regtype, opfname), opcdefault::text
		FROM pg_opclass JOIN families ON families.oid = opcfamily
	UNION ALL
	SELECT format('%s operator %s', opfname, amopopr::regoperator), amopstrategy::text, amopsortfamily::text
		FROM pg_amop JOIN families ON families.oid = amopfamily
	UNION ALL
	SELECT format('%s function %s', opfname, amproc::regprocedure), amprocnum::text, format('%s %s', amproclefttype::regtype, amprocrighttype::regtype)
		FROM pg_amproc JOIN families ON families.oid = amprocfamily) objects (what, a, b)
ORDER BY 1
END

# Rows, by an index with a filter column where there are these.
my $TABLE = <<'END';
CREATE TABLE items AS SELECT i AS id, i % 5 AS kind, ARRAY[sin(i), cos(i * 0.7), i % 17]::vector(3) AS v FROM generate_series(1, 300) i;
DO $$
BEGIN
	EXECUTE format('CREATE INDEX items_v ON items USING pipeann (v vector_l2_ops%s)',
		(SELECT ', kind' FROM pg_opclass WHERE opcname = 'int4_ops' AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'pipeann')));
END $$;
END
my $ROWS = "SELECT string_agg(id::text, ' ') FROM (SELECT id FROM items WHERE kind = 3 ORDER BY v <-> '[0.1,0.2,3]' LIMIT 20) s";
my $BY_INDEX = 'SET enable_seqscan = off; SET enable_sort = off;';

$node->safe_psql('postgres', 'CREATE DATABASE made');
$node->safe_psql('made', 'CREATE EXTENSION pipeann CASCADE');
my $made = $node->safe_psql('made', $OBJECTS);
cmp_ok(scalar(() = $made =~ /^function pipeann/mg), '>', 20, 'there are objects');

for my $script (@scripts)
{
	my ($state) = $script =~ m{([^/]+)\.sql$};
	my $sql = slurp_file($script);
	my ($answer, $warning, $now);

	# the library has one function in place of these two
	$sql =~ s/(pipeann_(?:value|array)_options\(.*?AS 'MODULE_PATHNAME')/$1, 'pipeann_column_options'/sg;
	open my $file, '>', "$root$dir{sharedir}/extension/pipeann--0.1.0.sql" or die $!;
	print $file $sql;
	close $file;
	$state =~ s/^\d+-/state_/;
	$node->safe_psql('postgres', "CREATE DATABASE $state");
	$node->safe_psql($state, "CREATE EXTENSION pipeann VERSION '0.1.0' CASCADE; $TABLE");
	isnt($node->safe_psql($state, $OBJECTS), $made, "$state: is another") if $script ne $scripts[-1];
	$node->psql($state, "$BY_INDEX $ROWS", stderr => \$warning);
	like($warning, qr/^psql:<stdin>:1: WARNING:  extension "pipeann" has version 0\.1\.0 in this database, but its library is \S+\nHINT:  Run ALTER EXTENSION pipeann UPDATE[^\n]*\z/,
		"$state: one line says that the library is newer");
	$node->safe_psql($state, 'ALTER EXTENSION pipeann UPDATE');
	$now = $node->safe_psql($state, $OBJECTS);
	ok($now eq $made, "$state: the same objects as made anew")
		or do { my %there = map { $_ => 1 } split /\n/, $made; diag(grep { !$there{$_} } map { "$_\n" } split /\n/, $now); };
	$node->psql($state, "$BY_INDEX $ROWS; SELECT pipeann_check('items_v', true)", stdout => \$answer, stderr => \$warning);
	is($warning, '', "$state: no warning, the index is sound");
	is($answer, $node->safe_psql($state, "SET enable_indexscan = off; $ROWS") . "\n300", "$state: the index has the rows");
}
$node->stop;
done_testing();
