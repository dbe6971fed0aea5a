// Package top is `lockproxy top`: who holds and waits for which lock at a lockproxy, in a terminal. It is a client of
// the proxy, and asks by LOCKPROXY.
package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
)

// Main shows what args ask for until the user leaves, and returns the exit code: 0, 1 after trouble, 2 for wrong
// arguments.
func Main(args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		Usage(os.Stdout)
		return 0
	case err != nil:
		return failed(2, err)
	}
	p := &proxy{target: o.target} // its connection ends with the process
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)
	defer stop()
	if o.once {
		if err := once(ctx, os.Stdout, p, o.rows); err != nil {
			return failed(1, err)
		}
		return 0
	}
	if err := newView(o, p).run(ctx, nil); err != nil {
		return failed(1, fmt.Errorf("%w; --once prints without a terminal", err))
	}
	return 0
}

func failed(code int, err error) int {
	fmt.Fprintf(os.Stderr, "lockproxy top: %v\n", err)
	return code
}

// once prints all lists.
func once(ctx context.Context, out io.Writer, p *proxy, rows int) error {
	for i, l := range lists {
		f, err := p.ask(ctx, l, rows)
		if err != nil {
			return err
		}
		if i == 0 {
			fmt.Fprintln(out, strings.Join(head(facts{}, f)[:2], "\n"))
		}
		fmt.Fprintf(out, "\n%s\n", l.name)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		titles := make([]string, len(l.columns))
		for at, c := range l.columns {
			titles[at] = c.title
		}
		fmt.Fprintln(table, strings.Join(titles, "\t"))
		for _, r := range f.rows {
			fmt.Fprintln(table, strings.Join(l.cells(r), "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
