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
		if err := once(ctx, os.Stdout, p, o); err != nil {
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
func once(ctx context.Context, out io.Writer, p *proxy, o options) error {
	for i := range lists {
		q := &query{list: &lists[i], rows: o.rows, all: o.all}
		f, err := p.ask(ctx, q)
		if err != nil {
			return fmt.Errorf("%s: %w", q.list.name, err)
		}
		if i == 0 {
			fmt.Fprintln(out, strings.Join(head(facts{}, f)[:2], "\n"))
		}
		fmt.Fprintf(out, "\n%s\n", q.list.name)
		table(out, q.shown(), f.rows)
	}
	return nil
}

// table prints rows below the titles of columns.
func table(out io.Writer, columns []column, rows []record) {
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, c := range columns {
		fmt.Fprint(lines, c.title, map[bool]string{true: "\n", false: "\t"}[i == len(columns)-1])
	}
	for _, r := range rows {
		fmt.Fprintln(lines, strings.Join(cells(columns, r), "\t"))
	}
	_ = lines.Flush() // as for all that is printed: nobody reads it any more if this fails
}
