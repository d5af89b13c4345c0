# Codes are in huge pages of the server's arena, for every backend, though none are
# reserved; not with huge_pages = off; and again after a crash.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

# Does this kernel collapse shared memory that nobody has advised on?
my $probe = compile_c('probe', <<'END');
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE (2UL << 20)
int main(void)
{
	char *room = mmap(0, 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = (char *) (((uintptr_t) room + HUGE - 1) & ~(HUGE - 1));

	at = mmap(at, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	*at = 1;
	return madvise(at, HUGE, MADV_COLLAPSE) != 0;
}
END
plan skip_all => 'no compiler' unless $probe;
plan skip_all => 'no such kernel' if system($probe) != 0;

my $vectors = images(4500, 7);
my $query = $vectors->[99];
my $node = make_node('huge', conf => 'restart_after_crash = on');
create_items($node, 'items', $vectors);

# kB of shared memory that a backend has mapped in huge pages, when it has searched.
sub huge
{
	my ($what) = @_;
	my $session = session($node);
	my @found = answer($session, 'items', $query, 10);
	my @true = exact_answer($session, 'items', $query, 10);
	my $maps = slurp_file('/proc/' . $session->backend . '/smaps');
	my $sum = 0;

	ok(same_answer(\@found, \@true), "$what: the right answer");
	$sum += $_ for $maps =~ /^ShmemPmdMapped: +(\d+)/mg;
	$session->close;
	return $sum;
}

cmp_ok(huge('the backend that loads'), '>=', 2048, 'has codes in a huge page');
cmp_ok(huge('another'), '>=', 2048, 'has them, too');

# The server ends all backends, and begins with new shared memory.
my $victim = session($node);
ok(kill_backend($node, $victim->backend), 'up again after a crash');
$victim->close;
cmp_ok(huge('after it'), '>=', 2048, 'codes are in a huge page again');

$node->append_conf('postgresql.conf', 'huge_pages = off');
$node->restart;
is(huge('switched off'), 0, 'none');
$node->stop;
done_testing();
