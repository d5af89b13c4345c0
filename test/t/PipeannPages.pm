# PipeannPages.pm
#	Reading and forging pages of an index file: fields are written and the page
#	is sealed again, so that only pipeann_check() can tell.

package PipeannPages;

use strict;
use warnings;

use PostgreSQL::Test::Utils;

my $BLOCK = 8192;
my $PAYLOAD = 24;				# where a page's contents begin
my $META_LAYOUT = 4;			# in the metapage, after the magic number
my $HEADER = 20;				# of a slot, before its neighbours

our $INVALID = 0xFFFFFFFF;
our ($USED, $EXT, $WIDE) = (1, 2, 4);

# The file of an index of a server that does not run. A node must fit a page.
sub new
{
	my ($class, $path) = @_;
	my $self = bless { path => $path, bytes => slurp_file($path) }, $class;
	my @layout = unpack 'S10L3S2L', substr $self->{bytes}, $PAYLOAD + $META_LAYOUT, 40;

	@$self{qw(dim max_degree inline_tids slots_per_page fill node_pages pq_bytes storage metric row_bytes
		slot_size tids_offset vector_offset stripe_pages stripe_codes codes_per_page)} = @layout;
	# two fields of a byte each, in the place of one
	@$self{qw(attr_bytes metric)} = ($self->{metric} >> 8, $self->{metric} & 255);
	die 'nodes of several pages' if $self->{node_pages} != 1;
	$self->{graph} = [ $self->of_kind(3) ];
	return $self;
}

# The checksum of src/storage/page.c, over the block's words but for what is left
# out of the first and last two.
sub checksum
{
	my ($page, $block) = @_;
	use integer;
	my ($prime1, $prime2) = (-7046029254386353131, -4417276706812531889);
	my @words = unpack 'q*', $page;
	my @lane;
	my $hash = $block;
	my $mix = sub {
		my $x = ($_[0] ^ $_[1]) * $prime1;
		my $high = do { no integer; ($x & ~0) >> 33 };
		return ($x << 31) | $high;
	};

	$words[0] = 0;
	$words[1] = unpack 'q', pack('S', 0) . substr $page, 10, 6;
	$words[-1] = unpack 'q', pack('L', 0) . substr $page, -4;
	$lane[0] = $mix->($prime2, unpack 'q', pack('S', 0) . substr $page, 10, 6);
	$lane[1] = $mix->($prime2, $words[-1]);
	$lane[$_] = $mix->($prime2, $words[$_]) for 2 .. 7;
	$lane[0] = $mix->($lane[0], $block);
	$lane[ $_ % 8 ] = $mix->($lane[ $_ % 8 ], $words[$_]) for 8 .. $#words - 1;
	for my $lane (@lane)
	{
		$hash = ($hash ^ $lane) * $prime2;
		$hash ^= do { no integer; ($hash & ~0) >> 29 };
	}
	$hash ^= do { no integer; ($hash & ~0) >> 32 };
	return $hash & 0xFFFFFFFF;
}

sub page { my ($self, $block) = @_; return substr $self->{bytes}, $block * $BLOCK, $BLOCK; }

sub is_new { my ($self, $block) = @_; return $self->page($block) eq "\0" x $BLOCK; }

sub blocks { my ($self) = @_; return length($self->{bytes}) / $BLOCK; }

# What stands on all pages of a kind, one after the other.
sub contents
{
	my ($self, $kind) = @_;
	return join '', map { substr $self->page($_), $PAYLOAD, $BLOCK - $PAYLOAD - 8 }
		grep { !$self->is_new($_) && $self->kind($_) == $kind } 0 .. $self->blocks - 1;
}

# What stands in a page as its checksum, and its kind.
sub sealed { my ($self, $block) = @_; return unpack 'L', substr $self->page($block), $BLOCK - 8, 4; }
sub kind { my ($self, $block) = @_; return unpack 'C', substr $self->page($block), $BLOCK - 4, 1; }

# Write bytes into a page, which is sealed when all is saved.
sub forge
{
	my ($self, $block, $offset, $bytes) = @_;

	substr $self->{bytes}, $block * $BLOCK + $offset, length $bytes, $bytes;
	$self->{forged}{$block} = 1;
	return;
}

sub save
{
	my ($self) = @_;

	substr $self->{bytes}, ($_ + 1) * $BLOCK - 8, 4, pack 'L', checksum($self->page($_), $_) for keys %{ $self->{forged} };
	open my $file, '+<:raw', $self->{path} or die "$self->{path}: $!";
	print $file $self->{bytes};
	close $file or die $!;
	return;
}

# Where a slot is.
sub block_of { my ($self, $id) = @_; return $self->{graph}[ int($id / $self->{slots_per_page}) ]; }
sub offset_of { my ($self, $id) = @_; return $PAYLOAD + $id % $self->{slots_per_page} * $self->{slot_size}; }

sub slot
{
	my ($self, $id) = @_;
	my $bytes = substr $self->page($self->block_of($id)), $self->offset_of($id), $self->{slot_size};
	my %slot;

	@slot{qw(flags degree ntids length ext_tids ext_vec aux)} = unpack 'S4L2f', $bytes;
	$slot{neighbors} = [ unpack 'L*', substr $bytes, $HEADER, 4 * $slot{degree} ];
	$slot{tids} = [ unpack '(a6)*', substr $bytes, $self->{tids_offset}, 6 * $slot{ntids} ];
	return \%slot;
}

# Where the rows with values of a node are in its slot, and their lengths.
sub rows
{
	my ($self, $id) = @_;
	my $bytes = substr $self->page($self->block_of($id)), $self->offset_of($id), $self->{slot_size};
	my ($at, @rows) = ($self->{tids_offset});

	for (1 .. $self->slot($id)->{ntids})
	{
		my $size = unpack('S', substr $bytes, $at + 6, 2) & 0x1FFF;
		push @rows, [ $at, $size ];
		$at += $size;
	}
	return @rows;
}

# Change a slot's field, or an element of its lists.
sub set
{
	my ($self, $id, $field, $value, $at) = @_;
	my %field = (flags => [ 0, 'S' ], degree => [ 2, 'S' ], ntids => [ 4, 'S' ], length => [ 6, 'S' ],
		ext_tids => [ 8, 'L' ], ext_vec => [ 12, 'L' ], aux => [ 16, 'f' ],
		neighbors => [ $HEADER + 4 * ($at || 0), 'L' ], tids => [ $self->{tids_offset} + 6 * ($at || 0), 'a6' ],
		body => [ $HEADER + ($at || 0), 'a*' ], bytes => [ $at || 0, 'a*' ], vector => [ $self->{vector_offset} + 4 * ($at || 0), 'f' ]);
	my ($offset, $template) = @{ $field{$field} };

	$self->forge($self->block_of($id), $self->offset_of($id) + $offset, pack $template, $value);
	return;
}

# Slots by what they are: nodes, overflow slots.
sub ids
{
	my ($self, $flags) = @_;
	my $last = @{ $self->{graph} } * $self->{slots_per_page} - 1;

	return grep { ($self->slot($_)->{flags} & 3) == $flags } 0 .. $last;
}

sub nodes { my ($self) = @_; return $self->ids($USED); }
sub exts { my ($self) = @_; return $self->ids($USED | $EXT); }

# Blocks of a kind.
sub of_kind { my ($self, $kind) = @_; return grep { $self->kind($_) == $kind } 0 .. $self->blocks - 1; }

# Block and offset of a node's code.
sub code
{
	my ($self, $id) = @_;
	my $per_page = $self->codes_per_page;
	my @codes = $self->of_kind(4);

	return ($codes[ int($id / $per_page) ], $PAYLOAD + $id % $per_page * $self->{pq_bytes});
}

sub codes_per_page { my ($self) = @_; return $self->{codes_per_page}; }

# Block and offset of a byte of a node's attribute code.
sub attribute
{
	my ($self, $id, $plane) = @_;
	my $per_page = $self->codes_per_page;
	my ($block) = $self->code($id);

	return ($block, $PAYLOAD + $per_page * ($self->{pq_bytes} + $plane) + $id % $per_page);
}

1;
