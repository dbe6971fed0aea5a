package main

import (
	"log/slog"
	"os"
	"runtime"

	"github.com/lockproxy/lockproxy/internal/config"
)

// useThreads leaves processors to Redis. Idle ones cost as well: on two shared processors a GET at P1 took 12.8 µs of the
// proxy's CPU with one thread and 24 to 32 with two, beside twemproxy's 9.2 in the same minutes.
func useThreads(n int) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	if n == 0 {
		n = max(1, runtime.NumCPU()/2)
	}
	runtime.GOMAXPROCS(n)
}

// reservedFiles are kept for connections to Redis and what else is not a client: clients that took all would keep the
// proxy from reaching Redis again after an outage.
const reservedFiles = 128

// clientPlaces is max-clients, or less when the process may not open that many files.
func clientPlaces(wanted, files int, log *slog.Logger) int {
	fit := files - min(reservedFiles, files/2)
	if wanted <= fit {
		return wanted
	}
	log.Warn("max-clients lowered to what the limit of open files leaves room for", "max-clients", fit, "wanted", wanted, "files", files)
	return fit
}

func newLogger(cfg config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
