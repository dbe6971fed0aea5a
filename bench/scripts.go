package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scriptRuns is how many runs of a script one sample is the mean of. They are few: of many samples, some are not
// disturbed by what else the machine does.
const scriptRuns = 100

// scriptSample is what one run of a script takes in Redis, by its own count, in µs.
type scriptSample struct {
	Ours   float64
	Theirs float64
}

func (s scriptSample) ratio() float64 { return s.Ours / s.Theirs }

// measureScripts fills the report's table of scripts: of each step our script and Redisson's by turns.
func measureScripts(ctx context.Context, s settings, b *environment, rep *report) error {
	c, err := dial(ctx, b.single.addrs[0])
	if err != nil {
		return err
	}
	defer c.Close()
	unwatch := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer unwatch()
	all := steps()
	for _, step := range all {
		for _, call := range []scriptCall{step.ours, step.theirs} {
			if err := c.all([][]byte{command("SCRIPT", "LOAD", call.source)}, "$40"); err != nil {
				return err
			}
		}
	}
	rounds := max(1, int(7*s.seconds*float64(s.rounds)))
	for round := range rounds {
		progress("scripts: round %d of %d", round+1, rounds)
		for _, step := range all {
			sample, err := step.sample(c, scriptRuns, round%2 == 1)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, errOthers) { // the proxies that are measured have the same Redis
				progress("scripts: round %d without %s: %v", round+1, step.name, err)
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			rep.scripts[step.name] = append(rep.scripts[step.name], sample)
		}
	}
	return nil
}

var errOthers = errors.New("others ran scripts meanwhile")

// sample measures both scripts, ours last or first.
func (s scriptStep) sample(c *client, runs int, last bool) (out scriptSample, err error) {
	measures := []func() error{
		func() (err error) { out.Ours, err = s.ours.measure(c, s, runs); return err },
		func() (err error) { out.Theirs, err = s.theirs.measure(c, s, runs); return err },
	}
	if last {
		slices.Reverse(measures)
	}
	for _, measure := range measures {
		if err := measure(); err != nil {
			return out, err
		}
	}
	return out, nil
}

// measure returns what the mean of some runs took, each on locks of its own.
func (call scriptCall) measure(c *client, s scriptStep, runs int) (micros float64, err error) {
	holds := max(1, s.holds)
	runs = max(1, runs/holds)
	var before, calls [][]byte
	for i := range runs {
		names := make([]string, holds)
		for j := range names {
			names[j] = "bench:lock:" + strconv.Itoa(i*holds+j)
		}
		calls = append(calls, call.command(names))
		for _, name := range names {
			of := wordsOf(name)
			for _, text := range slices.Concat(s.before, call.before) {
				before = append(before, command(words(text, of)...))
			}
		}
	}
	if err := c.all([][]byte{command("FLUSHALL")}, "+OK"); err != nil {
		return 0, err
	}
	if err := c.all(before, ""); err != nil {
		return 0, err
	}
	if err := c.all([][]byte{command("CONFIG", "RESETSTAT")}, "+OK"); err != nil {
		return 0, err
	}
	if err := c.all(calls, call.want); err != nil {
		return 0, err
	}
	return c.meanScript(runs)
}

// all sends commands at once, and holds each reply against how it must begin; errors never do.
func (c *client) all(commands [][]byte, want string) error {
	if _, err := c.Write(bytes.Join(commands, nil)); err != nil {
		return err
	}
	for _, sent := range commands {
		reply, err := c.reply()
		if err != nil {
			return err
		}
		if reply[0] == '-' || !bytes.HasPrefix(reply, []byte(want)) {
			return fmt.Errorf("%.300q got the reply %.200q, not %q", sent, reply, want)
		}
	}
	return nil
}

// meanScript is what the mean of all runs since the last CONFIG RESETSTAT took, of which there must be so many.
func (c *client) meanScript(runs int) (micros float64, err error) {
	if _, err := c.Write(command("INFO", "commandstats")); err != nil {
		return 0, err
	}
	info, err := c.reply()
	if err != nil {
		return 0, err
	}
	_, figures, _ := strings.Cut(string(info), "cmdstat_evalsha:")
	var calls, usec int
	if _, err := fmt.Sscanf(figures, "calls=%d,usec=%d,", &calls, &usec); err != nil {
		return 0, fmt.Errorf("%.100q says nothing about scripts: %w", figures, err)
	}
	if calls != runs {
		return 0, fmt.Errorf("%w: %d were counted instead of %d", errOthers, calls, runs)
	}
	return float64(usec) / float64(calls), nil
}

func sha(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// scriptFigures are the lower quartiles of some samples, which are disturbed less than the medians, and the quartiles of the ratio
// within one round, when both scripts ran on an equally busy machine.
func scriptFigures(samples []scriptSample) (least scriptSample, ratios [3]float64) {
	if len(samples) == 0 {
		return least, ratios
	}
	quartile := func(of int, figure func(scriptSample) float64) float64 {
		all := make([]float64, 0, len(samples))
		for _, s := range samples {
			all = append(all, figure(s))
		}
		slices.Sort(all)
		return all[(len(all)-1)*of/4]
	}
	least.Ours = quartile(1, func(s scriptSample) float64 { return s.Ours })
	least.Theirs = quartile(1, func(s scriptSample) float64 { return s.Theirs })
	for i := range ratios {
		ratios[i] = quartile(i+1, scriptSample.ratio)
	}
	return least, ratios
}

// loadOf is how busy the machine is: a caption.
func loadOf() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
