# PipeannServers.pm
#	Tables whose partitions are on other servers, by postgres_fdw.

package PipeannServers;

use strict;
use warnings;

use Exporter 'import';
use Pipeann;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(make_front add_server add_far set_option plan_of is_spread far_scans make_parts baton steps);

# The server that asks others: options as of make_node.
sub make_front
{
	my ($name, %options) = @_;
	my $node = make_node($name, preload => 'pipeann, pipeann_servers', %options);

	$node->safe_psql('postgres', 'CREATE EXTENSION pipeann_servers CASCADE');
	return $node;
}

# Make another server known to a session; options are SQL text.
sub add_server
{
	my ($session, $name, $node, $options) = @_;
	my ($host, $port) = ($node->host, $node->port);

	$options = $options ? ", $options" : '';
	$session->rows("CREATE SERVER $name FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres', extensions 'vector'$options)");
	$session->rows("CREATE USER MAPPING FOR CURRENT_USER SERVER $name");
	return;
}

# A foreign table as a partition, and the table at the other server.
sub add_far
{
	my ($session, $parent, $partition, $bounds, $server, $node, $columns) = @_;

	$node->safe_psql('postgres', "CREATE TABLE $partition ($columns)");
	$session->rows("CREATE FOREIGN TABLE $partition ($columns) SERVER $server OPTIONS (batch_size '100')");
	$session->rows("ALTER TABLE $parent ATTACH PARTITION $partition $bounds");
	return;
}

# Sets an option of servers, whether they have it or not.
sub set_option
{
	my ($session, $option, $value, @servers) = @_;

	for my $server (@servers)
	{
		my $has = $session->row("SELECT count(*) FROM pg_foreign_server WHERE srvname = '$server' AND srvoptions::text ~ '[{,\"]$option='");
		$session->rows("ALTER SERVER $server OPTIONS (" . ($has ? 'SET' : 'ADD') . " $option '$value')");
	}
	return;
}

sub plan_of { my ($session, $query) = @_; return $session->rows("EXPLAIN (VERBOSE, COSTS OFF) $query"); }

# The lines of a plan that say what is sent to servers.
sub far_scans { return grep { /Remote SQL:/ } @_; }

# Whether a plan asks N servers, all at the same time, for this many rows each.
sub is_spread
{
	my ($servers, $rows, @plan) = @_;
	my @sent = far_scans(@plan);
	my $limited = grep { /ORDER BY .* LIMIT \Q$rows\E$/ } @sent;
	my $async = grep { /Async Foreign Scan/ } @plan;

	return 1 if @sent == $servers && $limited == $servers && ($async == $servers || $servers == 1);
	diag join "\n", @plan;
	return 0;
}

# A primary and two replicas, each of which has a part of an index in memory: the replicas
# 1 and 2, and the primary 3. Nothing is brought into memory, so that each part has to be
# read by its owner. Returns the primary, a session of it, and the replicas. A table is
# made by the code, which gets the primary.
sub make_parts
{
	my ($fill) = @_;
	my $primary = make_front('primary', init => { allows_streaming => 1 },
		conf => "checkpoint_timeout = 1h\npipeann.hot_pages = 0\nwal_keep_size = 1GB\npipeann.parts = 3\npipeann.part = 3");

	$fill->($primary);
	$primary->backup('base');
	my @replicas = map {
		my $node = PostgreSQL::Test::Cluster->new("replica_$_");

		$node->init_from_backup($primary, 'base', has_streaming => 1);
		$node->append_conf('postgresql.conf', "pipeann.part = $_\nhot_standby_feedback = on");
		$node->start;
		$node;
	} 1, 2;
	my $here = session($primary);

	add_server($here, "p$_", (@replicas, $primary)[ $_ - 1 ]) for 1 .. 3;
	$primary->wait_for_catchup($_) for @replicas;
	$primary->restart;			# what was built is not in shared_buffers any more
	$_->restart for @replicas;
	return ($primary, session($primary), @replicas);
}

# A session whose searches go on in the others. Options: servers, settings.
sub baton
{
	my ($node, %options) = @_;
	my $servers = $options{servers} // 'p1, p2, p3';
	my $session = session($node);

	$session->rows("SET pipeann.search_mode = baton; SET pipeann_servers.part_servers = '$servers'; SET pipeann_servers.part_timeout = '5s'; $Pipeann::BY_INDEX");
	$session->rows($options{settings} // "$Pipeann::TO_THE_END");
	return $session;
}

# How many scans, steps of others' searches among them, servers have made of an index.
sub steps
{
	my ($index, @nodes) = @_;
	my $sum = 0;

	$sum += $_->safe_psql('postgres', "SELECT coalesce(sum(scans), 0) FROM pipeann_stats() WHERE indexrelid = '$index'::regclass") for @nodes;
	return $sum;
}

1;
