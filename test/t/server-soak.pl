# The server is killed in the middle of every operation, PIPEANN_SOAK_KILLS times;
# scripts/soak.sh asks for hundreds.

use strict;
use warnings;

use Pipeann;
use PipeannSoak;
use Test::More;

need_images();
random_seed();

my $kills = $ENV{PIPEANN_SOAK_KILLS} || 15;
my $soak = PipeannSoak->new;

for my $kill (1 .. $kills)
{
	my $kind = $PipeannSoak::kinds[ $kill % @PipeannSoak::kinds ];
	my ($name, @wrong) = $soak->round($kind);

	is(join("\n", @wrong), '', "kill $kill: $name");
}
note "$soak->{statements} statements answered";
is(scalar(grep { /PANIC|TRAP|signal 11|signal 6|signal 7/ } split /\n/, log_text($soak->{node})), 0, 'no process crashed of itself');
$soak->{node}->stop;
done_testing();
