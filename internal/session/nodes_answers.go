package session

import (
	"bytes"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/commands"
	"github.com/lockproxy/lockproxy/proto/resp"
)

// nodeAnswerer is who answers what is answered otherwise with a cluster upstream, in transactions aside; nil: nobody.
func nodeAnswerer(name string) nodeAnswer {
	switch name {
	case "wait", "waitaof":
		return (*clustered).waitCommand
	case "client|tracking":
		return (*clustered).tracking
	case "monitor", "shutdown":
		return (*clustered).oneNodeOnly
	case "function|stats":
		return (*clustered).functionStats
	case "pubsub|channels", "pubsub|numsub", "pubsub|shardchannels", "pubsub|shardnumsub":
		return (*clustered).pubsub
	}
	return nil
}

// oneNodeOnly refuses what would be about one of the nodes, and nobody would know which.
func (u *clustered) oneNodeOnly(args [][]byte) {
	u.s.error("ERR '" + strings.ToUpper(string(args[0])) + "' is of one node: lockproxy does not send it to a cluster")
}

// tracking is CLIENT TRACKING: a node tells of its own keys only.
func (u *clustered) tracking(args [][]byte) {
	if len(args) == 3 && equalFold(args[2], "OFF") {
		u.s.ok()
		return
	}
	u.s.error("ERR CLIENT TRACKING is not available with a cluster upstream: lockproxy does not track keys over several nodes")
}

// waitCommand is WAIT, or WAITAOF, at all masters: the least of them counts. It asks for a second at a time, so that the
// client's end is noticed. What they count is all that was written before.
func (u *clustered) waitCommand(args [][]byte) {
	words, at := append([][]byte(nil), args...), len(args)-1
	timeout, ok := commands.Integer(args[at])
	if !ok || timeout < 0 {
		u.s.relay(u.s.askRaw(resp.Command(args))) // says so
		return
	}
	facts := &cluster.Facts{Name: "wait", Request: cluster.AllShards, Response: cluster.Min}
	until := time.Now().Add(time.Duration(timeout) * time.Millisecond)
	u.s.flush()
	u.onOwn(func(e *cluster.Executor) {
		nothing := bytes.Split([]byte("WAIT 0 0"), []byte(" ")) // has Redis count from now on
		first := cluster.NewPlan(cluster.Command{Raw: resp.Command(nothing), Args: nothing, Facts: facts})
		for {
			left := time.Second
			if timeout > 0 {
				left = min(left, max(time.Until(until), time.Millisecond))
			}
			words[at] = integerText(left.Milliseconds())
			p := cluster.NewPlan(cluster.Command{Raw: resp.Command(words), Args: words, Facts: facts})
			plans := []*cluster.Plan{p}
			if first != nil {
				plans, first = []*cluster.Plan{first, p}, nil
			}
			ctx, done := u.s.clientContext()
			e.Do(ctx, plans)
			done()
			if p.Err != nil || enough(p.Reply, args[1:at]) || timeout > 0 && !time.Now().Before(until) || u.s.guard.Over() {
				u.s.relay(p.Reply, p.Err)
				return
			}
		}
	})
}

// enough says that WAIT, or WAITAOF with its two numbers, need not go on: what was wanted is there, or it failed.
func enough(reply []byte, wanted [][]byte) bool {
	r, _ := resp.ParseReply(reply)
	have := r.Elems
	if r.Kind == ':' {
		have = []resp.Reply{r}
	}
	for i := range min(len(have), len(wanted)) {
		if n, ok := commands.Integer(wanted[i]); ok && int64(have[i].Int()) < n {
			return false
		}
	}
	return true
}

// pubsub is PUBSUB of all nodes: each knows of its own subscribers only.
func (u *clustered) pubsub(args [][]byte) {
	t := u.s.srv.facts.table.Load()
	c, _ := t.find(args)
	p := cluster.NewPlan(cluster.Command{Raw: resp.Command(args), Args: args, Facts: t.routeOf(c).facts})
	ctx, done := u.s.clientContext()
	u.executor().Do(ctx, []*cluster.Plan{p})
	done()
	r, ok := resp.ParseReply(p.Reply)
	if p.Err != nil || !ok || r.Kind != '*' {
		u.s.relay(p.Reply, p.Err)
		return
	}
	counts := strings.HasSuffix(c.Name, "numsub")
	step := 1
	if counts {
		step = 2
	}
	var names [][]byte
	sum := map[string]int{}
	for i := 0; i+step <= len(r.Elems); i += step {
		name := string(r.Elems[i].Raw)
		if _, twice := sum[name]; !twice {
			names = append(names, r.Elems[i].Raw)
		}
		if sum[name] += 0; counts {
			sum[name] += r.Elems[i+1].Int()
		}
	}
	out := resp.AppendArray(u.s.batch.out, len(names)*step)
	for _, name := range names {
		if out = append(out, name...); counts {
			out = resp.AppendInt(out, int64(sum[string(name)]))
		}
	}
	u.s.batch.out = out
}

// infoFacts have all masters answer INFO. One that cannot does not hide what the others say.
var infoFacts = &cluster.Facts{Name: "info", ReadOnly: true, Request: cluster.AllShards, Response: cluster.Each, Partial: true}

// askInfo is INFO as the masters answer it together.
func (u *clustered) askInfo(args [][]byte) ([]byte, error) {
	answer, err := u.askPlan(cluster.Command{Raw: resp.Command(args), Args: args, Facts: infoFacts})
	if err != nil {
		return nil, err
	}
	all, _ := resp.ParseReply(answer)
	var texts []string
	for _, r := range all.Elems {
		if r.Kind == '$' || r.Kind == '=' {
			texts = append(texts, string(r.Text))
		}
	}
	if len(texts) == 0 { // they refuse it
		return all.Elems[0].Raw, nil
	}
	return resp.AppendVerbatim(nil, u.s.ident.Proto, "txt", commands.SumInfo(texts)), nil
}

// statsFacts have all masters answer FUNCTION STATS.
var statsFacts = &cluster.Facts{Name: "function|stats", ReadOnly: true, Request: cluster.AllShards, Response: cluster.Each, Partial: true}

// functionStats is FUNCTION STATS: a master's that runs a script, or any one's, since all have the same libraries.
func (u *clustered) functionStats(args [][]byte) {
	answer, err := u.askPlan(cluster.Command{Raw: resp.Command(args), Args: args, Facts: statsFacts})
	if err != nil {
		u.s.relay(nil, err)
		return
	}
	all, _ := resp.ParseReply(answer)
	said := all.Elems[0].Raw
	for _, r := range all.Elems {
		if len(r.Elems) > 1 && string(r.Elems[0].Text) == "running_script" && !r.Elems[1].Null {
			said = r.Raw
		}
	}
	u.s.relay(said, nil)
}
