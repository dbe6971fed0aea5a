package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/config"
	"github.com/lockproxy/lockproxy/internal/events"
	"github.com/lockproxy/lockproxy/internal/logqueue"
)

// eventsWaiting is how many bytes of events may wait to be written.
const eventsWaiting = 4 << 20

// eventLog is the process's events.
type eventLog struct {
	*events.Log
	lines *logqueue.Queue // before their file, so that nobody waits for a disk; nil: there is none
}

// openEvents opens the file that settings name.
func openEvents(set config.Log, log *slog.Logger) (eventLog, error) {
	if set.Events == "" {
		return eventLog{Log: events.New(nil, "")}, nil
	}
	file := &eventFile{File: os.Stdout, log: log}
	if set.Events != "stdout" {
		opened, err := openToAppend(set.Events, os.O_CREATE)
		if err != nil {
			return eventLog{}, err
		}
		file.File = opened
	}
	lines := logqueue.New(file, eventsWaiting, droppedEvents)
	host, _ := os.Hostname() // as the other proxies know this one
	return eventLog{events.New(lines, host), lines}, nil
}

// openToAppend opens a file of events. A pipe that nobody reads is an error, and not waited for.
func openToAppend(name string, how int) (*os.File, error) {
	file, err := os.OpenFile(name, how|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		err = fmt.Errorf("event-log: %w", err)
	}
	return file, err
}

// tryEvents says why events could not be written to a file, "" is none. One that is not there yet is not made, since
// another user may run this.
func tryEvents(name string) error {
	if name == "" || name == "stdout" {
		return nil
	}
	file, err := openToAppend(name, 0)
	if err == nil {
		return file.Close()
	}
	if info, there := os.Stat(filepath.Dir(name)); errors.Is(err, fs.ErrNotExist) && there == nil && info.IsDir() {
		return nil
	}
	return err
}

// droppedEvents is the line that says how many were not written.
func droppedEvents(lines int) []byte {
	line, _ := json.Marshal(map[string]any{"at": time.Now().UTC(), "event": "dropped", "more": lines}) // it never fails
	return append(line, '\n')
}

// closeFile writes what is still to be written, unless that takes too long.
func (l eventLog) closeFile() {
	l.Log.Close()
	if l.lines != nil {
		l.lines.Close(logTime)
	}
}

// noteEvent notes what has happened to the process.
func (l eventLog) noteEvent(k events.Kind, reason string) {
	l.Add(events.Event{At: time.Now(), Kind: k, Reason: reason})
}

// eventFile is a file to which the queue appends lines.
type eventFile struct {
	*os.File
	log *slog.Logger
	bad bool // nothing could be written, and the log has said so
}

// Write implements io.Writer. The log has a line for the first of many failures.
func (f *eventFile) Write(p []byte) (n int, err error) {
	n, err = f.File.Write(p)
	if err != nil && !f.bad {
		f.log.Error("events cannot be written", "event-log", f.Name(), "error", err)
	}
	f.bad = err != nil
	return n, err
}
