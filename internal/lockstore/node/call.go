package node

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/jitter"
	"github.com/lockproxy/lockproxy/internal/telemetry"
	"github.com/lockproxy/lockproxy/scripts"
	"github.com/lockproxy/lockproxy/upstream"
)

// Call is one run of a script.
type Call struct {
	DB     int
	Script *scripts.Script
	Keys   []string
	Args   []string
	Shape  Shape // of its reply
}

// build is the call as a command of its client: EVALSHA with the script's SHA, or EVAL with its source.
func (c Call) build(client rueidis.Client, verb, body string) rueidis.Completed {
	jitter.Turn(c.Keys[0], c.Args)
	return client.B().Arbitrary(verb, body,
		strconv.Itoa(len(c.Keys))).Keys(c.Keys[0]).Args(c.Keys[1:]...).Args(c.Args...).Build()
}

// NotAfter is a time in µs of Redis' clock as the not-after of a script.
func NotAfter(at int64) string { return strconv.FormatInt(max(0, at), 10) }

// Eval runs a script by EVALSHA, by EVAL when Redis does not know it; ask is for a slot that is moving to the node. It
// does not end early: what was sent has an outcome, which the caller must know. Errors are those of Outcome.
func (n *Node) Eval(c Call, ask bool) (rueidis.RedisMessage, error) {
	client, err := n.Control.Client(c.DB)
	if err != nil {
		return rueidis.RedisMessage{}, Outcome(err)
	}
	defer telemetry.ScriptDone(c.Script.Name, telemetry.Clock())
	reply, err := Do(client, c.build(client, "EVALSHA", c.Script.SHA), ask).ToMessage()
	if unknownScript(err) {
		reply, err = Do(client, c.build(client, "EVAL", c.Script.Source), ask).ToMessage()
	}
	return reply, Outcome(err)
}

// Do runs a command; with ask after ASKING, in one write.
func Do(client rueidis.Client, command rueidis.Completed, ask bool) rueidis.RedisResult {
	if ask {
		return client.DoMulti(context.Background(), client.B().Asking().Build(), command)[1]
	}
	return client.Do(context.Background(), command)
}

// EvalInts runs one of the scripts that every LOCK and UNLOCK needs, in the way that costs the proxy least.
func (n *Node) EvalInts(c Call, ask bool) ([]int64, error) {
	defer telemetry.ScriptDone(c.Script.Name, telemetry.Clock())
	out, err := n.Control.Ints(c.DB, c.Script.SHA, c.Script.Source, c.Keys, c.Args, ask)
	if refusal, ok := err.(*upstream.ReplyError); ok {
		err = &upstream.ReplyError{Line: redisLine(refusal.Line)} // the same words as from Eval
	}
	if err != nil {
		return nil, err
	}
	return c.judged(out)
}

// EvalReplicated runs a script and, if it grants a lock, waits on the same connection until replicas of the node have
// that. acked is how many did within the time; the script's own outcome is in err.
func (n *Node) EvalReplicated(c Call, replicas int64, wait time.Duration) (out []int64, acked int64, err error) {
	client, err := n.Control.Waiter(c.DB)
	if err != nil {
		return nil, 0, Outcome(err)
	}
	defer telemetry.ScriptDone(c.Script.Name, telemetry.Clock())
	conn, release := client.Dedicate() // WAIT answers for the writes of its own connection
	defer release()
	reply, err := conn.Do(context.Background(), c.build(client, "EVALSHA", c.Script.SHA)).ToMessage()
	if unknownScript(err) {
		reply, err = conn.Do(context.Background(), c.build(client, "EVAL", c.Script.Source)).ToMessage()
	}
	if err != nil {
		return nil, 0, Outcome(err)
	}
	if out, err = c.Ints(reply, nil); err != nil || out[0] != scripts.Done {
		return out, 0, err
	}
	// A lost WAIT is an unmet one: the script's outcome is known.
	acked, _ = conn.Do(context.Background(),
		client.B().Wait().Numreplicas(replicas).Timeout(max(1, wait.Milliseconds())).Build()).AsInt64()
	return out, acked, nil
}

// unknownScript says whether Redis does not know a script that EVALSHA named.
func unknownScript(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && reply.IsNoScript()
}
