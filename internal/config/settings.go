package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/upstream"
)

const (
	versionMeaning = "Print the version and leave."
	checkMeaning   = "Check the settings, and the files that they name, and leave: exit code 0, or 2 and what is wrong."
	helpMeaning    = "Print the settings that most people need and leave."
	helpAllMeaning = "Print all settings and leave."
)

// Shortest periods that still leave time for a round trip to Redis, to a node of a quorum for one that is near.
const (
	minWatchdogTimeout = 100 * time.Millisecond
	minWaitPoll        = 100 * time.Millisecond
	minCluster         = 100 * time.Millisecond
	minNodeTimeout     = 5 * time.Millisecond
)

// setting is one row of the operator's reference. Flag and YAML key are its
// name, the environment variable is derived from it.
type setting struct {
	name    string
	def     string // as it would be written
	list    bool   // repeatable and comma separated
	meaning string // Markdown
	apply   func(c *Config, text string) error
}

// settings in the order of the documentation. (A function literal per row rather
// than struct tags: the compiler then checks every field.)
var settings = []setting{
	{"upstream", "", false, "The Redis to serve: `redis://[user:password@]host:port[/db]`, `rediss://…` with TLS, `unix:///path[?db=n]`, `redis+sentinel://[user:password@]host:port[,host:port…]/master-name[/db]` for the master that Sentinels name, `redis-cluster://[user:password@]host:port[,host:port…]`; with TLS `rediss+sentinel://…` and `rediss-cluster://…`. The Sentinels' own password is `?sentinel-password=…` and `&sentinel-user=…`. Special characters are percent-encoded. Empty: the embedded store, in this process and gone with it. Everyone on the machine sees flags: put a password into the environment or a file.",
		func(c *Config, v string) (err error) {
			c.Upstream.URL, err = upstream.ParseURL(v)
			return err
		}},
	{"listen", "127.0.0.1:6380", true, "Where clients connect: `host:port`, `unix:///path`, or `systemd:NAME` for the sockets that systemd has opened under that FileDescriptorName. The embedded store listens on loopback only, unless `protected-mode` is `no`.",
		list(func(c *Config) *[]string { return &c.Listen.Addresses })},
	{"tls-listen", "", true, "Where clients connect with TLS, 1.2 or newer: `host:port` or `systemd:NAME`. Beside `listen`, or instead with `--listen=`.",
		list(func(c *Config) *[]string { return &c.TLS.Listen })},
	{"tls-cert", "", true, "Certificate files for `tls-listen`, PEM, each with its chain. A client gets the first that fits the name it asks for (SNI), or else the first. Changed files are loaded within seconds, or at once on SIGHUP; of files that cannot be used the old ones stay.",
		list(func(c *Config) *[]string { return &c.TLS.Certs })},
	{"tls-key", "", true, "Their key files, in the same order.",
		list(func(c *Config) *[]string { return &c.TLS.Keys })},
	{"tls-client-ca", "", false, "The authorities, PEM, that sign the certificates of clients. Reloaded like `tls-cert`.",
		text(func(c *Config) *string { return &c.TLS.ClientCA })},
	{"tls-client-auth", "", false, "Must clients show a certificate? `no`, `optional` (one that is shown must be good) or `required`. Empty: `required` with `tls-client-ca`, else `no`.",
		choice(func(c *Config) *string { return &c.TLS.ClientAuth }, "no", "optional", "required")},
	{"tls-auth-user-passwords", "", false, "A file that lets certificates log in: a client with a good one is the user of Redis that its common name says, without AUTH, if the file has its password: see docs/SECURITY.md. On each line a user, a space and its password in Redis; `#` begins a comment. It is looked at every second. Empty: certificates name nobody.",
		text(func(c *Config) *string { return &c.TLS.UserPasswords })},
	{"proxy-protocol", "off", false, "`required`: each TCP connection begins with a PROXY protocol header, version 1 or 2, which has the client's address; others are closed. `off`: headers are not understood.",
		choice(func(c *Config) *string { return &c.Listen.ProxyProtocol }, "off", "required")},
	{"proxy-protocol-from", "", true, "The load balancers: addresses or networks such as `10.0.0.0/8`. Connections from elsewhere are closed. Empty: everybody's header is believed.",
		networks(func(c *Config) *[]netip.Prefix { return &c.Listen.ProxyFrom })},
	{"unix-socket-mode", "", false, "The permissions of the socket of `unix:///path` in `listen`, such as `770`. Empty: what the umask leaves.",
		func(c *Config, v string) error {
			if v == "" {
				c.Listen.UnixMode = 0
				return nil
			}
			mode, err := strconv.ParseUint(v, 8, 32)
			if err != nil || mode == 0 || mode > 0o777 {
				return fmt.Errorf("%q is no permissions in octal, such as 770", v)
			}
			c.Listen.UnixMode = fs.FileMode(mode)
			return nil
		}},
	{"unix-socket-group", "", false, "The group of that socket, by name or number, of which this process is a member. Empty: that of the process.",
		text(func(c *Config) *string { return &c.Listen.UnixGroup })},
	{"attached", "no", false, "`yes`: for a program that starts a lockproxy for itself: see docs/TESTING.md. Each address that it listens at is a line on standard output, when clients can connect; and the process stops when standard input ends. Clients that hold locks have a second then.",
		choice(func(c *Config) *string { return &c.Listen.Attached }, "yes", "no")},
	{"reuse-port", "no", false, "`yes`: other processes of the same user that say so may listen at the same TCP addresses (SO_REUSEPORT), of all the `…-listen` settings, so that a new one serves before the old one stops: see docs/OPERATIONS.md.",
		choice(func(c *Config) *string { return &c.Listen.ReusePort }, "yes", "no")},
	{"protected-mode", "yes", false, "`yes`: as long as Redis asks for no password of the default user, or could not be asked, only clients at loopback addresses (with `proxy-protocol`: in the header) and unix sockets are let in. `no`: everybody is.",
		choice(func(c *Config) *string { return &c.Listen.ProtectedMode }, "yes", "no")},
	{"upstream-tls-ca", "", false, "The authorities, PEM, to trust with `rediss://`, instead of the system's. Like the two below it is reloaded when the file changes.",
		text(func(c *Config) *string { return &c.Upstream.TLSCA })},
	{"upstream-tls-cert", "", false, "The certificate, PEM, to show to a Redis with `tls-auth-clients`.",
		text(func(c *Config) *string { return &c.Upstream.TLSCert })},
	{"upstream-tls-key", "", false, "Its key.",
		text(func(c *Config) *string { return &c.Upstream.TLSKey })},
	{"upstream-tls-server-name", "", false, "The name Redis' certificate is for, also sent as SNI, where it is not the host of `upstream`.",
		text(func(c *Config) *string { return &c.Upstream.TLSServerName })},
	{"upstream-password-file", "", false, "A file whose only line is the password of `upstream`'s user, instead of one in the URL. It is looked at every second: see docs/OPERATIONS.md.",
		text(func(c *Config) *string { return &c.Upstream.PasswordFile })},
	{"sentinel-password-file", "", false, "The same for the Sentinels' own password, instead of `?sentinel-password=…`.",
		text(func(c *Config) *string { return &c.Upstream.SentinelPasswordFile })},
	{"cluster-address-map", "", true, "For a cluster behind NAT: what its nodes call each other, and where they are reached from here: `host:port=host:port`, or `host=host` for all ports.",
		list(func(c *Config) *[]string { return &c.Cluster.AddressMap })},
	{"cluster-refresh", "5s", false, "How often the cluster is asked for its topology when nothing happens, more or less by half. At least 100ms.",
		duration(minCluster, func(c *Config) *time.Duration { return &c.Cluster.Refresh })},
	{"cluster-retry", "5s", false, "How long a command is tried again that a cluster did not run: a node out of reach, CLUSTERDOWN, TRYAGAIN. At least 100ms.",
		duration(minCluster, func(c *Config) *time.Duration { return &c.Cluster.Retry })},
	{"present", "standalone", false, "What clients see, whatever is upstream: `standalone`, a Redis alone; `cluster`, a cluster whose only node has all slots.",
		choice(func(c *Config) *string { return &c.Listen.Present }, "standalone", "cluster")},
	{"announce-address", "", false, "The `host:port` of this proxy, such as a load balancer's, for clients with `present` `cluster`. Empty: the address that the client has connected to.",
		hostPort(func(c *Config) *string { return &c.Listen.Announce })},
	{"config", "", false, "A YAML file with any of these settings under their names. Like all files that settings name it is a regular file of at most 1 MiB.",
		text(func(c *Config) *string { return &c.File.Name })},

	{"quorum", "", true, "Keep the locks on these independent Redis masters instead of `upstream`, which keeps the data: three or five URLs as for `upstream`, the same at every proxy; for `rediss://` the `upstream-tls-` settings hold. A lock is held when a majority has it (redlock): see docs/QUORUM.md.",
		quorumNodes},
	{"quorum-password-file", "", false, "As `upstream-password-file`, for the user of each of the `quorum` nodes.",
		text(func(c *Config) *string { return &c.Quorum.PasswordFile })},
	{"quorum-max-lease", "1m", false, "The longest lease, and how long a node must have been up before it counts, since it may have forgotten locks. The same at every proxy; not below `lock-watchdog-timeout`, at most `24h`.",
		duration(0, func(c *Config) *time.Duration { return &c.Quorum.MaxLease })},
	{"quorum-node-timeout", "200ms", false, "How long a node may take to answer before the others decide. Far above a round trip, at most a tenth of `lock-watchdog-timeout`.",
		duration(minNodeTimeout, func(c *Config) *time.Duration { return &c.Quorum.NodeTimeout })},

	{"locks", "", false, "Keep the locks on this Redis, not on `upstream`: a URL as there, without a database. The `upstream-tls-` settings hold. The same at every proxy: see docs/OPERATIONS.md.",
		func(c *Config, v string) (err error) {
			c.Locks.URL, err = upstream.ParseURL(v)
			return err
		}},
	{"locks-password-file", "", false, "As `upstream-password-file`, for the user of `locks`.",
		text(func(c *Config) *string { return &c.Locks.PasswordFile })},
	{"lock-watchdog-timeout", "30s", false, "Lease of a lock taken without EX or PX; it is renewed every third of this while its holder lives. At least 100ms. As Redisson's `lockWatchdogTimeout`.",
		duration(minWatchdogTimeout, func(c *Config) *time.Duration { return &c.Locks.WatchdogTimeout })},
	{"drain-delay", "", false, "How long a stopping proxy goes on as before, except that `/readyz` says no, so that load balancers send new clients elsewhere. None: 5s with `metrics-listen`, else 0. Left out if, with `reuse-port`, another process answers there. With `drain-timeout` it stays below what kills the process.",
		duration(0, func(c *Config) *time.Duration { return &c.Drain.Delay })},
	{"drain-timeout", "20s", false, "How long a stopping proxy waits for clients that hold locks, or are in a wait or a transaction. Locks still held then are not released: they expire.",
		duration(0, func(c *Config) *time.Duration { return &c.Drain.Timeout })},
	{"max-hold", "0", false, "Stop renewing a lock held for longer than this, so that a hung client loses it. 0: never.",
		duration(0, func(c *Config) *time.Duration { return &c.Locks.MaxHold })},
	{"cluster-pubsub", "sharded", false, "How those who wait for a lock on a cluster are told that it is free: `sharded` (SPUBLISH; PUBLISH before Redis 7), `classic` (PUBLISH, which goes to all nodes), or `both`: docs/REDISSON.md. The same at every proxy.",
		choice(func(c *Config) *string { return &c.Cluster.PubSub }, "sharded", "classic", "both")},
	{"implicit-reentry", "auto", false, "May a connection take a lock that it holds again without OWNER or SELF? `auto`: yes, unless it has named a client library, which may share connections between threads; `always`; `never`.",
		choice(func(c *Config) *string { return &c.Locks.ImplicitReentry }, "auto", "always", "never")},
	{"wait-poll", "3s", false, "How long a waiter waits for a message before it asks Redis about the lock itself. At least 100ms.",
		duration(minWaitPoll, func(c *Config) *time.Duration { return &c.Locks.WaitPoll })},

	{"max-clients", "10000", false, "Client connections served at once; more are told so and closed; `admin-socket` is open to operators all the same. Lowered at the start if the limit of open files is too low.",
		number(1, func(c *Config) *int { return &c.Limits.MaxClients })},
	{"max-upstream-connections", "0", false, "Most connections to Redis for clients: shared ones, for which a quarter, at most 64, is reserved, and those that a client has to itself, of which one user may have three quarters (clients that have not logged in are one). Half is left to those who cannot do without. Above it a command that needs one gets an error. 0: what the limit of open files leaves beside `max-clients`, at least a third of it, at most 10000.",
		number(0, func(c *Config) *int { return &c.Limits.MaxUpstream })},
	{"max-locks-per-user", "0", false, "Locks that one user's connections to this proxy hold or wait for. More are refused. Clients of one address that have not logged in count as one user. 0: no limit.",
		number(0, func(c *Config) *int { return &c.Limits.LocksPerUser })},
	{"max-bulk", "512mb", false, "Longest single argument of a command. A whole command may be twice as long, or 1gb, and have 1048576 arguments.",
		size(1, func(c *Config) *int { return &c.Limits.MaxBulk })},
	{"max-query-memory", "1gb", false, "Most bytes of unfinished commands, and of transactions queued before a cluster, of all clients together; clients below 64kb are not counted. Above it, the clients with the longest are closed: see docs/OPERATIONS.md. 0: no limit.",
		size(0, func(c *Config) *int { return &c.Limits.MaxQueryMemory })},
	{"max-reply-memory", "1gb", false, "Most bytes of replies that wait here, counted likewise; the clients with the most are closed. 0: no limit.",
		size(0, func(c *Config) *int { return &c.Limits.MaxReplyMemory })},
	{"client-output-buffer-limit", "normal 0 0 0, pubsub 32mb 8mb 60", true, "Redis' setting: class, hard limit, soft limit, seconds. A client is closed when more than the hard limit waits here to be written, or more than the soft limit for so many seconds. It is not for replies that are passed on as they come.",
		outputLimits},
	{"idle-timeout", "0", false, "Close a client that has sent and taken nothing for this long, holds no lock, waits for nothing and is not subscribed. 0: never.",
		duration(0, func(c *Config) *time.Duration { return &c.Limits.IdleTimeout })},
	{"upstream-timeout", "0", false, "How long Redis may take to answer a command; one that waits by itself (BLPOP …) has its own time besides. Then the command gets `ERR upstream timeout …`, and its client's locks are left to expire. 0: as long as it likes.",
		duration(0, func(c *Config) *time.Duration { return &c.Upstream.Timeout })},
	{"handshake-timeout", "0", false, "Close a client that has not sent its first whole command after this long, or not authenticated where Redis asks for a password. 0: never; set it where strangers can reach the port.",
		duration(0, func(c *Config) *time.Duration { return &c.Limits.HandshakeTimeout })},
	{"allow", "", true, "Commands to pass on that are refused otherwise: `monitor`, which shows everybody's commands, and `debug`, which can stop Redis.",
		optionalNames},
	{"deny", "", true, "Names of commands, or `name|subcommand`, that are refused. Scripts can still run them: only Redis' ACLs stop that.",
		commandNames(func(c *Config) *[]string { return &c.Commands.Deny })},
	{"blocking-commands", "", true, "Commands that may wait, as BLPOP does, although Redis does not say so, such as a module's: each call gets a connection to itself.",
		commandNames(func(c *Config) *[]string { return &c.Commands.Blocking })},
	{"operators", "", true, "Users of Redis who may run `LOCKPROXY`: see docs/OPERATIONS.md. Where Redis asks for no password, `default` is everybody. Empty: nobody.",
		list(func(c *Config) *[]string { return &c.Commands.Operators })},

	{"metrics-listen", "", false, "`host:port` of `/metrics` for Prometheus, and of `/livez` and `/readyz`. Empty: off. OTLP is set by `OTEL_` variables: see docs/OPERATIONS.md.",
		text(func(c *Config) *string { return &c.Admin.Metrics })},
	{"admin-socket", "", false, "The path of a unix socket for operators, made with the permissions 600: who may connect is one, whatever `operators` says, without a password. `LOCKPROXY`, `CLIENT`, `INFO`, `COMMAND` and `PING` are answered there also while all places are taken, in a drain, and without Redis. Empty: off.",
		text(func(c *Config) *string { return &c.Admin.Socket })},
	{"admin-listen", "", false, "`host:port` of the page for operators, from which locks can be freed by force: see docs/OPERATIONS.md. On an address that is not this machine's own (`127.0.0.1`, `::1`, `localhost`) it needs a token or `admin-tls-client-ca`. Empty: off.",
		text(func(c *Config) *string { return &c.Admin.Page })},
	{"admin-token-file", "", false, "A file whose only line, of 16 bytes at least, is what `admin-listen` asks for: as a password, with any name, or as `Authorization: Bearer`. It is looked at every second.",
		text(func(c *Config) *string { return &c.Admin.TokenFile })},
	{"admin-view-token-file", "", false, "The same for those who may look at the page, and free or close nothing.",
		text(func(c *Config) *string { return &c.Admin.ViewTokenFile })},
	{"admin-tls-cert", "", false, "The certificate of `admin-listen`, PEM, with its chain: it speaks TLS then. Reloaded like `tls-cert`.",
		text(func(c *Config) *string { return &c.Admin.TLSCert })},
	{"admin-tls-key", "", false, "Its key.",
		text(func(c *Config) *string { return &c.Admin.TLSKey })},
	{"admin-tls-client-ca", "", false, "The authorities, PEM, that sign the certificates of those who come to `admin-listen`; besides the token, if there is one.",
		text(func(c *Config) *string { return &c.Admin.ClientCA })},
	{"event-log", "", false, "A file, made with mode 0600, or `stdout`: what happens to locks, clients and the process, as lines of JSON. Empty: off. See docs/OPERATIONS.md.",
		text(func(c *Config) *string { return &c.Log.Events })},
	{"log-level", "info", false, "`debug`, `info`, `warn` or `error`.",
		logLevel},
	{"log-format", "text", false, "`text` or `json`, to standard error.",
		choice(func(c *Config) *string { return &c.Log.Format }, "text", "json")},
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = v
		return nil
	}
}

func list(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = words(v)
		return nil
	}
}

// words are the items of a list.
func words(v string) (items []string) {
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// networks takes addresses for networks of one.
func networks(field func(*Config) *[]netip.Prefix) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = nil
		for _, word := range words(v) {
			p, err := netip.ParsePrefix(word)
			if ip, alone := netip.ParseAddr(word); alone == nil {
				p, err = ip.Prefix(ip.BitLen())
			}
			if err != nil {
				return fmt.Errorf("%q is not an address or a network such as 10.0.0.0/8", word)
			}
			*field(c) = append(*field(c), p.Masked())
		}
		return nil
	}
}

func quorumNodes(c *Config, v string) error {
	c.Quorum.Nodes = nil
	for _, word := range words(v) {
		node, err := upstream.ParseURL(word)
		if err != nil {
			return err
		}
		c.Quorum.Nodes = append(c.Quorum.Nodes, node)
	}
	return nil
}

func commandNames(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, v string) error {
		names := words(strings.ToLower(v))
		for _, name := range names {
			if strings.ContainsAny(name, " \t\r\n\"") {
				return fmt.Errorf("%q is not a command name", name)
			}
		}
		*field(c) = names
		return nil
	}
}

func optionalNames(c *Config, v string) error {
	names := words(strings.ToLower(v))
	for _, name := range names {
		if !slices.Contains(optional, name) {
			return fmt.Errorf("%q is not one of %s", name, strings.Join(optional, ", "))
		}
	}
	c.Commands.Allow = names
	return nil
}

// hostPort takes host:port, or nothing.
func hostPort(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = v
		if v == "" {
			return nil
		}
		return validHostPort(v)
	}
}

func choice(field func(*Config) *string, allowed ...string) func(*Config, string) error {
	return func(c *Config, v string) error {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("%q is not one of %s", v, strings.Join(allowed, ", "))
		}
		*field(c) = v
		return nil
	}
}

func number(least int, field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		return atLeast(least, n, field(c))
	}
}

func duration(least time.Duration, field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 500ms, 30s or 1h30m", v)
		}
		return atLeast(least, d, field(c))
	}
}

// atLeast sets a field, unless the value is below the least one.
func atLeast[T cmp.Ordered](least, value T, field *T) error {
	if value < least {
		return fmt.Errorf("%v is below %v", value, least)
	}
	*field = value
	return nil
}

// sizeUnits are redis.conf's: k is 1000, kb is 1024.
var sizeUnits = map[string]int{
	"": 1, "b": 1,
	"k": 1000, "kb": 1 << 10,
	"m": 1000_000, "mb": 1 << 20,
	"g": 1000_000_000, "gb": 1 << 30,
}

func size(least int, field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		n, err := parseSize(v)
		if err != nil {
			return err
		}
		return atLeast(least, n, field(c))
	}
}

func parseSize(v string) (bytes int, err error) {
	lower := strings.ToLower(v) // which may be longer than v
	digits := strings.TrimRight(lower, "bkmg")
	unit, known := sizeUnits[lower[len(digits):]]
	n, err := strconv.Atoi(digits)
	if err != nil || !known || n < 0 || n > math.MaxInt/unit {
		return 0, fmt.Errorf("%q is not a size such as 65536, 64kb, 512mb or 1gb", v)
	}
	return n * unit, nil
}

func logLevel(c *Config, v string) error {
	if err := c.Log.Level.UnmarshalText([]byte(v)); err != nil {
		return fmt.Errorf("%q is not one of debug, info, warn, error", v)
	}
	return nil
}
