package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
)

// run runs the chosen units and prints the verdict.
func run(ctx context.Context, s settings) error {
	su, err := openSuite(ctx, s)
	if err != nil {
		return err
	}
	b := &environment{s: s, suite: su}
	if b.skips, err = readSkips(s.skips, s.resp, s.nodes); err != nil {
		return err
	}
	for _, u := range s.units {
		if !slices.Contains(su.units, u) {
			return fmt.Errorf("the suite %s has no unit %s", su.name, u)
		}
	}
	if s.mode == "proxy" {
		tmp, err := os.MkdirTemp("", "lockproxy-tcl-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		if b.binary, err = lockproxy(ctx, s.proxy, tmp); err != nil {
			return err
		}
	}
	progress("tcl: suite %s on %s, RESP%d", su.name, su.serves, s.resp)
	results, err := b.runAll(ctx)
	if err != nil {
		return err
	}
	return b.conclude(results)
}

// lockproxy is the program under test: the one given, or this module's, built.
func lockproxy(ctx context.Context, given, tmp string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	progress("tcl: building lockproxy")
	file := filepath.Join(tmp, "lockproxy")
	_, err := output(ctx, exec.Command("go", "build", "-o", file, "github.com/lockproxy/lockproxy/cmd/lockproxy"))
	return file, err
}

// runAll runs every unit, s.jobs at a time, in the suite's order.
func (b *environment) runAll(ctx context.Context) ([]*result, error) {
	units := b.suite.units
	if len(b.s.units) > 0 {
		units = b.s.units
	}
	results := make([]*result, len(units))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(b.s.jobs)
	for i, unit := range units {
		group.Go(b.runner(ctx, unit, &results[i]))
	}
	return results, group.Wait()
}

func (b *environment) runner(ctx context.Context, unit string, to **result) func() error {
	return func() error {
		r, err := b.runBoth(ctx, unit)
		if err != nil {
			return fmt.Errorf("%s: %w", unit, err)
		}
		*to = r
		if r.whole == nil && r.direct.passes()+len(r.direct.Failed) > 0 {
			progress("tcl: %s", r.line())
		}
		return nil
	}
}

func (b *environment) runBoth(ctx context.Context, unit string) (*result, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	r := &result{unit: unit}
	whole := b.skips.whole(unit)
	if whole != nil && !whole.cluster {
		r.whole = whole
		return r, nil
	}
	var err error
	if r.direct, err = b.baseline(ctx, unit); err != nil {
		return nil, err
	}
	r.straight(b.skips)
	// Units that have no test for an external server have none for us.
	if b.s.mode == "direct" || r.direct.Aborted == "" && r.direct.passes() == 0 {
		return r, nil
	}
	if whole != nil {
		r.proxy = &outcome{Unit: unit}
	} else if r.proxy, err = b.runUnit(ctx, unit, false); err != nil {
		return nil, err
	}
	r.compare(b.skips)
	return r, nil
}

// conclude prints what matters, writes the table, and fails when something does.
func (b *environment) conclude(results []*result) error {
	v := judge(results)
	v.print(os.Stdout)
	if b.s.mode == "proxy" && len(b.s.units) == 0 {
		v.unused(os.Stdout, b.skips, b.suite)
	}
	if b.s.write != "" {
		if err := b.write(v); err != nil {
			return err
		}
	}
	if v.bad > 0 {
		return errors.New("not as it should be, see above")
	}
	return nil
}
