/*
 * proxy.c
 *		Stands before a server, on a port of its own: holds up what goes through, or cuts it off.
 *
 *	 proxy SOCKET [delay=SECONDS] [of=TEXT] [cut=N] [stall=N]
 *
 *	 delay	each way
 *	 of		only messages in which the text is are delayed, and what comes behind them
 *	 cut	each connection at the client's N-th message
 *	 stall	from there on nothing goes through, and the connection stays open
 *
 * A message is what comes at once: what a client sends before it waits for the answer, if
 * that is not long. The port is printed first. A line on standard input is answered by the
 * connections, the messages of all clients, and the bytes to servers and to clients; its end
 * ends the proxy, and so does that of who has started it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MOST_AT_ONCE 65536
#define MOST_HELD (1 << 20)
#define SECOND 1000000000L

typedef struct Piece
{
	struct Piece *next;
	long		due;			/* in nanoseconds */
	size_t		size;
	size_t		sent;
	char		bytes[];
} Piece;

/* One of the two sockets of a connection, with what is to be written to it. */
typedef struct End
{
	int			fd;
	int			events;
	int			stuck;			/* its buffer in the kernel is full */
	size_t		held;
	Piece	   *first;
	Piece	  **last;
	struct Connection *connection;
} End;

typedef struct Connection
{
	struct Connection *next;
	End			ends[2];		/* the client, the server */
	long		messages;
	int			closing;		/* nothing is read any more, what is held goes out */
	int			over;
	int			stalls;
} Connection;

static struct
{
	const char *path;
	long		delay;
	const char *of;
	long		cut;
	long		stall;
} options;

static Connection *connections;
static long counts[4];			/* connections, messages, bytes to servers and to clients */
static int	epoll,
			listener,
			timer;

static void
fail(const char *what)
{
	perror(what);
	exit(1);
}

static long
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * SECOND + time.tv_nsec;
}

static void
watch(int fd, void *what, int events, int operation)
{
	struct epoll_event event = {.events = events,.data.ptr = what};

	if (epoll_ctl(epoll, operation, fd, &event) != 0)
		fail("epoll_ctl");
}

static int
listen_here(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t	size = sizeof(address);
	int			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *) &address, size) != 0 || listen(fd, 100) != 0 ||
		getsockname(fd, (struct sockaddr *) &address, &size) != 0)
		fail("listen");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	return fd;
}

static void
begin(Connection *connection, int which, int fd)
{
	End		   *end = &connection->ends[which];

	end->fd = fd;
	end->last = &end->first;
	end->connection = connection;
	end->events = EPOLLIN;
	watch(fd, end, EPOLLIN, EPOLL_CTL_ADD);
}

static void
accept_one(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			client = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int			server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int			on = 1;
	Connection *connection;

	strncpy(address.sun_path, options.path, sizeof(address.sun_path) - 1);
	if (client < 0 || server < 0 || connect(server, (struct sockaddr *) &address, sizeof(address)) != 0)
	{
		close(client);
		close(server);
		return;
	}
	setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	connection = calloc(1, sizeof(Connection));
	if (connection == NULL)
		fail("memory");
	begin(connection, 0, client);
	begin(connection, 1, server);
	connection->next = connections;
	connections = connection;
	counts[0]++;
}

static void
hold(End *to, const char *bytes, size_t size)
{
	Piece	   *piece = malloc(sizeof(Piece) + size);

	if (piece == NULL)
		fail("memory");
	*piece = (Piece) {.size = size};
	if (options.of == NULL || memmem(bytes, size, options.of, strlen(options.of)) != NULL)
		piece->due = now() + options.delay;
	memcpy(piece->bytes, bytes, size);
	*to->last = piece;
	to->last = &piece->next;
	to->held += size;
}

/* What has come at one end is held for the other. */
static void
take(End *from)
{
	Connection *connection = from->connection;
	int			is_client = from == &connection->ends[0];
	char		bytes[MOST_AT_ONCE];
	ssize_t		size = recv(from->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (size < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (size > 0 && is_client)
	{
		connection->messages++;
		counts[1]++;
	}
	if (size <= 0 || (is_client && connection->messages == options.cut))
		connection->closing = 1;
	else if (is_client && connection->messages == options.stall)
		connection->stalls = 1;
	else
	{
		counts[is_client ? 2 : 3] += size;
		hold(&connection->ends[is_client], bytes, size);
	}
}

/* Write what is due; returns when the next will be, or 0. */
static long
pass_on(End *to, long time)
{
	while (to->first != NULL && to->first->due <= time && !to->stuck)
	{
		Piece	   *piece = to->first;
		ssize_t		sent = send(to->fd, piece->bytes + piece->sent, piece->size - piece->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN && errno != EINTR)
		{
			to->connection->over = 1;
			return 0;
		}
		piece->sent += sent > 0 ? sent : 0;
		if (piece->sent < piece->size)
		{
			to->stuck = 1;
			return 0;
		}
		to->first = piece->next;
		if (to->first == NULL)
			to->last = &to->first;
		to->held -= piece->size;
		free(piece);
	}
	return to->first != NULL && !to->stuck ? to->first->due : 0;
}

static void
look_for(End *end, End *other)
{
	Connection *connection = end->connection;
	int			events = end->stuck ? EPOLLOUT : 0;

	if (!connection->closing && !connection->stalls && other->held < MOST_HELD)
		events |= EPOLLIN;
	if (events != end->events)
		watch(end->fd, end, end->events = events, EPOLL_CTL_MOD);
}

static void
end_connection(Connection *connection)
{
	for (int which = 0; which < 2; which++)
	{
		close(connection->ends[which].fd);
		for (Piece *piece = connection->ends[which].first, *next; piece != NULL; piece = next)
		{
			next = piece->next;
			free(piece);
		}
	}
	free(connection);
}

/* Have all go on that can; wake up again when the next piece is due. */
static void
go_on(void)
{
	struct itimerspec at = {0};
	long		time = now();
	long		next = 0;

	for (Connection **link = &connections, *connection; (connection = *link) != NULL;)
	{
		End		   *ends = connection->ends;

		for (int which = 0; which < 2; which++)
		{
			long		due = pass_on(&ends[which], time);

			if (due != 0 && (next == 0 || due < next))
				next = due;
		}
		if (connection->over || (connection->closing && ends[0].first == NULL && ends[1].first == NULL))
		{
			*link = connection->next;
			end_connection(connection);
			continue;
		}
		look_for(&ends[0], &ends[1]);
		look_for(&ends[1], &ends[0]);
		link = &connection->next;
	}
	at.it_value = (struct timespec) {next / SECOND, next % SECOND};
	timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void
tell(void)
{
	char		line[256];
	ssize_t		size = read(STDIN_FILENO, line, sizeof(line));

	if (size <= 0)
		exit(0);
	printf("%ld %ld %ld %ld\n", counts[0], counts[1], counts[2], counts[3]);
	fflush(stdout);
}

static void
react(const struct epoll_event *event)
{
	End		   *end = event->data.ptr;
	long		expired;

	if (event->data.ptr == &listener)
		accept_one();
	else if (event->data.ptr == &counts)
		tell();
	else if (event->data.ptr == &timer)
		(void) !read(timer, &expired, sizeof(expired));
	else
	{
		if (event->events & EPOLLOUT)
			end->stuck = 0;
		if (event->events & EPOLLIN)
			take(end);
		/* Nothing is read, and nobody is there. */
		else if (event->events & (EPOLLHUP | EPOLLERR))
			end->connection->over = 1;
	}
}

int
main(int argc, char **argv)
{
	struct epoll_event events[64];

	if (argc < 2)
		return 2;
	options.path = argv[1];
	for (int i = 2; i < argc; i++)
	{
		if (strncmp(argv[i], "delay=", 6) == 0)
			options.delay = atof(argv[i] + 6) * SECOND;
		else if (strncmp(argv[i], "of=", 3) == 0)
			options.of = argv[i] + 3;
		else if (strncmp(argv[i], "cut=", 4) == 0)
			options.cut = atol(argv[i] + 4);
		else if (strncmp(argv[i], "stall=", 6) == 0)
			options.stall = atol(argv[i] + 6);
		else
			return 2;
	}
	epoll = epoll_create1(EPOLL_CLOEXEC);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	listener = listen_here();
	watch(listener, &listener, EPOLLIN, EPOLL_CTL_ADD);
	watch(timer, &timer, EPOLLIN, EPOLL_CTL_ADD);
	watch(STDIN_FILENO, &counts, EPOLLIN, EPOLL_CTL_ADD);
	for (;;)
	{
		int			count = epoll_wait(epoll, events, 64, -1);

		for (int i = 0; i < count; i++)
			react(&events[i]);
		go_on();
	}
}
