# Reading without io_uring, without direct I/O, or without both: the same answers, one
# line in the log for each session, no error. The kernel's refusals are real, or as close
# as a test can get.

use strict;
use warnings;

use Pipeann;
use PostgreSQL::Test::Utils;
use Test::More;

need_images();

my $vectors = images(6000, 7);
my @queries = map { $vectors->[ $_ * 239 ] } 0 .. 24;

# Little memory: index pages must be read.
my $node = make_node('io', conf => "shared_buffers = 1MB");
create_items($node, 'items', $vectors);
# a node of three pages, and no codes
create_items($node, 'wide', images(300, 28), index => 'USING pipeann (v vector_l2_ops) WITH (m = 100, ef_construction = 200, storage = float4)');
my @wide = @{ images(5, 28) };
my $session = session($node);
my %true;
for my $table (qw(items wide))
{
	$true{$table}{$_} = [ exact_answer($session, $table, $_, 10) ] for $table eq 'items' ? @queries : @wide;
}
$session->close;
$node->stop;

# deny CALL ERROR PROGRAM...: runs a program whose system calls of that number
# fail with that error.
my $deny = compile_c('deny', <<'C');
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __NR_io_uring_setup
#define __NR_io_uring_setup 425
#define __NR_io_uring_enter 426
#endif

int
main(int argc, char **argv)
{
	unsigned	call = argv[1][0] == 's' ? __NR_io_uring_setup : __NR_io_uring_enter;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | atoi(argv[2])),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
	{
		perror("seccomp");
		return 125;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 126;
}
C

# A library in front of open() that does not know O_DIRECT.
my $indirect = compile_c('indirect.so', <<'C', '-shared', '-fPIC');
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>

#define REPLACE(name) \
int name(const char *path, int flags, ...) \
{ \
	static int (*real) (const char *, int, ...); \
	va_list args; \
	int mode; \
	va_start(args, flags); \
	mode = va_arg(args, int); \
	va_end(args); \
	if (flags & O_DIRECT) \
	{ \
		errno = EINVAL; \
		return -1; \
	} \
	if (!real) \
		real = (int (*) (const char *, int, ...)) dlsym(RTLD_NEXT, #name); \
	return real(path, flags, mode); \
}
#undef open
#undef open64
REPLACE(open)
REPLACE(open64)
C

# Start the server by way of other programs.
sub start_by
{
	my (@prefix) = @_;

	system_or_bail(@prefix, 'pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, 'start');
	$node->_update_pid(1);
	return;
}

# Two sessions ask everything; returns the number of different answers and what
# the log has in lines like this for each session.
sub check_answers
{
	my ($what, %want) = @_;
	my $from = -s $node->logfile;
	my $settings = $want{settings} || '';
	my ($different, $reads) = (0, 0);
	my (@methods, @direct);

	for (1 .. 2)
	{
		my $session = session($node);
		# answers are to be the exact ones
		$session->rows("$Pipeann::LONG_LIST; $settings");
		for my $table (qw(items wide))
		{
			for my $query (sort keys %{ $true{$table} })
			{
				my @got = answer($session, $table, $query, 10);
				$different++ unless same_answer(\@got, $true{$table}{$query});
				$reads += $session->row('SELECT page_reads FROM pipeann_last_search()');
			}
		}
		push @methods, info($session, 'items_v', 'io_method');
		push @direct, info($session, 'items_v', 'direct_io');
		$session->close;
	}
	my $log = log_text($node, $from);
	is($different, 0, "$what: the right answers");
	cmp_ok($reads, '>', 100, "$what: pages were read ($reads)");
	is("@methods", "$want{method} $want{method}", "$what: reads by $want{method}");
	is("@direct", $want{method} eq 'pread' || $want{buffered} ? 'f f' : 't t', "$what: direct or not");
	my $lines = () = $log =~ /io_uring cannot be used/g;
	is($lines, $want{no_ring} || 0, "$what: lines in the log about io_uring");
	$lines = () = $log =~ /direct I\/O is not possible/g;
	is($lines, $want{no_direct} || 0, "$what: lines in the log about direct I/O");
	is(scalar crash_lines($node, $from), 0, "$what: no process crashed");
	return;
}

$node->start;
$session->connect;
my $usual = info($session, 'items_v', 'io_method');
$session->close;
check_answers('as usual', method => $usual, no_ring => $usual eq 'pread' ? 2 : 0);
note "usual here: $usual";
check_answers('pread', method => 'pread', settings => 'SET pipeann.io_method = pread');
check_answers('pread, buffered', method => 'pread', settings => 'SET pipeann.io_method = pread; SET pipeann.direct_io = off');
SKIP:
{
	skip 'no io_uring here', 5 unless $usual eq 'io_uring';
	check_answers('io_uring, buffered', method => 'io_uring', buffered => 1, settings => 'SET pipeann.io_method = io_uring; SET pipeann.direct_io = off');
}

# changed in the middle of a session
$session->connect;
my $wrong = 0;
for my $i (0 .. $#queries)
{
	# answers are to be the exact ones
	$session->rows("$Pipeann::LONG_LIST; SET pipeann.io_method = " . ($i % 2 ? 'pread' : 'auto')
		. '; SET pipeann.direct_io = ' . ($i % 3 ? 'on' : 'off'));
	$wrong++ unless same_answer([ answer($session, 'items', $queries[$i], 10) ], $true{items}{ $queries[$i] });
}
is($wrong, 0, 'settings changed from query to query: the right answers');
$session->close;
$node->stop;

SKIP:
{
	my $works = $deny && system($deny, 'setup', 1, 'true') == 0;
	skip 'no seccomp filters, or no compiler', 1 unless $works;
	my %errors = (EPERM => 1, ENOSYS => 38, ENOMEM => 12);

	for my $error (sort keys %errors)
	{
		start_by($deny, 'setup', $errors{$error});
		check_answers("io_uring_setup: $error", method => 'pread', no_ring => 2);
		check_answers("io_uring_setup: $error, io_uring asked for", method => 'pread', no_ring => 2,
			settings => 'SET pipeann.io_method = io_uring') if $error eq 'EPERM';
		$node->stop;
	}
	skip 'no io_uring here', 1 unless $usual eq 'io_uring';
	%errors = (EPERM => 1, EAGAIN => 11);
	for my $error (sort keys %errors)
	{
		start_by($deny, 'enter', $errors{$error});
		check_answers("io_uring_enter: $error", method => 'pread', no_ring => 2);
		$node->stop;
	}
}

SKIP:
{
	skip 'no compiler', 1 unless $indirect;
	{
		local $ENV{LD_PRELOAD} = $indirect;
		start_by();
	}
	check_answers('no O_DIRECT', method => $usual, buffered => 1, no_direct => $usual eq 'io_uring' ? 2 : 0);
	$node->stop;
	skip 'no seccomp filters', 1 unless $deny && system($deny, 'setup', 1, 'true') == 0;
	{
		local $ENV{LD_PRELOAD} = $indirect;
		start_by($deny, 'setup', 1);
	}
	check_answers('neither', method => 'pread', no_ring => 2);
	$node->stop;
}

done_testing();
