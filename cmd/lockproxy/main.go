// Command lockproxy is a proxy in front of Redis that adds locks to the Redis protocol.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/logqueue"
	"github.com/lockproxy/lockproxy/internal/runlock"
	"github.com/lockproxy/lockproxy/internal/top"
)

// Set by the linker for packages (deploy/dist), else by noteBuild.
var (
	version = ""
	commit  = ""
)

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	exitForce = 130 // a second signal ended the process
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	noteBuild(debug.ReadBuildInfo())
	if len(args) > 0 {
		switch args[0] {
		case "run":
			return runlock.Main(args[1:])
		case "top":
			return top.Main(args[1:])
		case "health":
			return healthMain(args[1:])
		}
	}
	cfg, err := config.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		config.Usage(os.Stdout)
		return exitOK
	case errors.Is(err, config.ErrHelpAll):
		config.UsageAll(os.Stdout)
		return exitOK
	case err != nil:
		fmt.Fprintf(os.Stderr, "lockproxy: %v\n", err)
		return exitUsage
	case cfg.Version:
		fmt.Println("lockproxy", buildText())
		return exitOK
	case cfg.Check:
		if err := errors.Join(checkStart(cfg), checkFiles(cfg)); err != nil {
			fmt.Fprintf(os.Stderr, "lockproxy: %v\n", err)
			return exitUsage
		}
		fmt.Println("the settings are good")
		return exitOK
	}
	// Before somebody takes it, and after, it would end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	logqueue.OutliveReader()
	out := newLogQueue(cfg)
	defer out.Close(logTime)
	log, level := newLogger(cfg, out)
	useHalf()
	defer runtime.KeepAlive(collectLate())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ends := make(chan os.Signal, 2)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	var serving atomic.Pointer[app]
	go endOnSignals(ends, stop, func() {
		left := "nobody"
		if a := serving.Load(); a != nil {
			left = a.server.Left()
		}
		log.Warn("a second signal: the process ends now, and locks that its clients hold expire", "left", left)
		out.Close(logTime)
	})
	if cfg.Listen.Attached == "yes" {
		go endWithInput(os.Stdin, ends)
	}
	a, err := newApp(ctx, newSettings(cfg, args, level, stop), log)
	switch {
	case err != nil && ctx.Err() != nil:
		log.Info("stopped before the start was over")
		return exitOK
	case err != nil:
		log.Error("cannot start", "error", err)
		return exitError
	}
	serving.Store(a)
	if err := a.run(ctx); err != nil {
		log.Error("ended", "error", err)
		return exitError
	}
	return exitOK
}

// endOnSignals has the process stop at the first signal, and ends it at the second, for an operator who does not want
// to wait. Before that say is called, which may take logTime.
func endOnSignals(ends <-chan os.Signal, stop, say func()) {
	<-ends
	stop()
	<-ends
	time.AfterFunc(logTime, func() { os.Exit(exitForce) }) // however stuck the process is
	say()
	os.Exit(exitForce)
}

// buildText is what --version shows: the version, and of which commit, with which Go, and for which system it was
// built.
func buildText() string {
	return fmt.Sprintf("%s (commit %s, %s %s/%s)", version, cmp.Or(commit, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// noteBuild has version and commit as the go command has noted them, where the linker was not told.
func noteBuild(info *debug.BuildInfo, ok bool) {
	if !ok {
		return
	}
	version = cmp.Or(version, info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = cmp.Or(commit, s.Value)
		}
	}
}
