package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/internal/program"
)

// herdClients is how many clients want the one lock through each proxy.
const herdClients = 2

// herdLoads are one lock that is wanted through so many proxies, as where each pod has one, and by Redisson in as many threads of one JVM.
var herdLoads = []load{lockLoad(herd, 2*herdClients), lockLoad(herd, 8*herdClients), lockLoad(herd, 40*herdClients)}

// measureHerds measures all contestants with so many proxies in turn.
func measureHerds(ctx context.Context, s settings, b *environment, rep *report) error {
	if t := b.target(lockproxy); t.problem != "" {
		return nil // said already
	}
	built := rep.rivals(ctx)
	for _, l := range herdLoads {
		t, err := b.herd(ctx, l.Connections/herdClients)
		if err == nil {
			err = measureHerd(ctx, s, b, rep, built, t, l)
		}
		for _, p := range t.beside {
			p.Stop()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			rep.missing(l.String(), err)
		}
	}
	return nil
}

func measureHerd(ctx context.Context, s settings, b *environment, rep *report, built map[string]*rival, herd *target, l load) error {
	for round := range s.rounds {
		for _, c := range contestants {
			if !c.takesPart(l) {
				continue
			}
			t := herd
			if c.through != "" {
				t = b.target(c.through)
			}
			if err := c.sample(ctx, s, rep, t, l, built[c.of], round); err != nil {
				return err
			}
		}
	}
	return nil
}

// herd starts n proxies. What was started is in the target also when one cannot be.
func (b *environment) herd(ctx context.Context, n int) (*target, error) {
	t := &target{name: herd, redis: b.single}
	var addrs []string
	for i := range n {
		addr, err := program.FreeAddr()
		if err != nil {
			return t, err
		}
		p, err := b.launch(fmt.Sprint("herd-", i), addr, "redis://"+b.single.addrs[0])
		if err != nil {
			return t, err
		}
		t.beside, addrs = append(t.beside, p), append(addrs, addr)
		if err := p.Ready(ctx, addr, tryGet); err != nil {
			return t, err
		}
	}
	t.addr = strings.Join(addrs, ",")
	return t, nil
}

func (rep *report) herdTables() (all []table) {
	for _, l := range herdLoads {
		t := table{title: l.String(), head: []string{"", "changed hands", "÷ Redisson", "scripts a grant", "µs in scripts", "CPU µs: Redis", "CPU µs: proxies",
			"longest wait, ms", "fewest grants", "most"}}
		peer := rep.median(redisson, l)
		for _, row := range rep.rows(l) {
			m := rep.median(row, l)
			t.add(row, count(m.Changes), decimal(ratio(m.Changes, peer.Changes)), decimal(m.Scripts), decimal(m.InScripts), decimal(m.RedisCPU),
				decimal(m.ProxyCPU), whole(m.Longest/1000), fmt.Sprint(m.Least), fmt.Sprint(m.Most))
		}
		if len(t.rows) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// herdChart is what a grant costs Redis, by how many proxies.
func (rep *report) herdChart() chart {
	c := chart{File: "proxies", Title: "One lock through many proxies, two clients each: scripts in Redis for a grant", Unit: "scripts", Lines: true}
	for _, l := range herdLoads {
		c.Names = append(c.Names, fmt.Sprintf("%d proxies", l.Connections/herdClients))
	}
	for _, row := range rep.rows(herdLoads[0]) {
		line := series{Name: row}
		for _, l := range herdLoads {
			line.Values = append(line.Values, rep.median(row, l).Scripts)
		}
		c.Series = append(c.Series, line)
	}
	return c
}
