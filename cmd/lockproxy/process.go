package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/loglimit"
	"github.com/lockproxy/lockproxy/internal/logqueue"
)

// useHalf uses half of the processors, unless GOMAXPROCS says how many, and leaves the others to Redis. Idle ones cost as well: on two shared processors a GET at P1 took 12.8 µs of
// the proxy's CPU with one thread and 24 to 32 with two, beside twemproxy's 9.2 in the same minutes.
func useHalf() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
}

// collectLate lets at least 16 MiB of garbage come together while what it returns is kept, unless the operator has
// told Go how much memory to use. Go collects when there is as much garbage as there was left after the last time,
// and what a proxy has left is so little that it would collect ten times a second. Nobody writes to this memory, so
// that it takes none of the system's.
func collectLate() (unused []byte) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, 16<<20)
}

// reservedFiles are kept for the proxy's own connections, as those for locks, and what else is not a client: clients
// that took all would keep the proxy from reaching Redis again after an outage.
const reservedFiles = 128

// mostUpstream is how many connections to Redis there may be unless it is set otherwise: as many clients as Redis
// serves by itself.
const mostUpstream = 10000

// places divides the files that the process may have open between clients and the connections to Redis that they cause.
// upstream 0 stands for what is left by as many clients as wanted, or a third where there is too little for both.
func places(clients, upstream, files int, log *slog.Logger) (int, int) {
	fit := files - min(reservedFiles, files/2)
	most := max(1, fit/2)
	if upstream == 0 {
		upstream = min(mostUpstream, max(fit-clients, fit/3, 1))
	}
	if upstream > most {
		log.Warn("max-upstream-connections lowered to what the limit of open files leaves room for", "max-upstream-connections", most, "wanted", upstream, "files", files)
		upstream = most
	}
	if left := max(1, fit-upstream); clients > left {
		log.Warn("max-clients lowered to what the limit of open files leaves room for", "max-clients", left, "wanted", clients, "files", files)
		clients = left
	}
	return clients, upstream
}

// logTime is how long the end of the process waits for whoever reads the log.
const logTime = time.Second

// newLogQueue returns what the log is written through: a pipe or a terminal that nobody reads must not hold up
// clients, nor a stop.
func newLogQueue(cfg config.Config) *logqueue.Queue {
	return logqueue.New(os.Stderr, logqueue.Usual, func(lines int) []byte {
		var line bytes.Buffer
		log, level := newLogger(cfg, &line)
		level.Set(slog.LevelWarn) // it is said however little else is
		log.Warn("lines of the log were dropped, since nobody read them", "lines", lines)
		return line.Bytes()
	})
}

// newLogger returns the log, which others cannot make grow without end, and its level, which may be set anew.
func newLogger(cfg config.Config, to io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(cfg.Log.Level)
	o := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		o.ReplaceAttr = asText
		return slog.New(loglimit.New(slog.NewJSONHandler(to, o))), level
	}
	return slog.New(loglimit.New(slog.NewTextHandler(to, o))), level
}

// asText has the JSON log show values as the text log does: kinds of locks as words, and not the numbers that stand
// for them, and durations with their unit.
func asText(_ []string, a slog.Attr) slog.Attr {
	if shown, ok := a.Value.Any().(fmt.Stringer); ok && a.Value.Kind() != slog.KindTime {
		a.Value = slog.StringValue(shown.String())
	}
	return a
}
