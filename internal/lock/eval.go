package lock

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

// call is one run of a script.
type call struct {
	db     int
	script *scripts.Script
	keys   []string
	args   []string
}

// eval runs a script by EVALSHA, by EVAL when Redis does not know it. It does not end with ctx, which only carries the span:
// what was sent has an outcome, and that outcome is wanted. Errors are those of outcome.
func (m *Manager) eval(ctx context.Context, c call) (rueidis.RedisMessage, error) {
	_, span := telemetry.Span(ctx, "script "+c.script.Name)
	defer span.End()
	if m.fleet != nil {
		return m.fleet.eval(ctx, c)
	}
	reply, err := evalOn(m.ctl, c)
	m.account.refused(err)
	return reply, err
}

func evalOn(ctl *upstream.Control, c call) (rueidis.RedisMessage, error) {
	client, err := ctl.Client(c.db)
	if err != nil {
		return rueidis.RedisMessage{}, &upstream.NotSentError{Cause: err}
	}
	reply, err := client.Do(context.Background(), c.build(client, "EVALSHA", c.script.SHA)).ToMessage()
	if unknownScript(err) {
		reply, err = client.Do(context.Background(), c.build(client, "EVAL", c.script.Source)).ToMessage()
	}
	return reply, outcome(err)
}

// evalInts runs one of the two scripts that every LOCK and UNLOCK needs, on the short way.
func (m *Manager) evalInts(ctx context.Context, c call) ([]int64, error) {
	_, span := telemetry.Span(ctx, "script "+c.script.Name)
	defer span.End()
	if m.fleet != nil {
		return m.fleet.evalInts(ctx, c)
	}
	out, err := m.ctl.Ints(c.db, c.script.SHA, c.script.Source, c.keys, c.args)
	err = outside(err)
	m.account.refused(err)
	return out, err
}

// outside gives the refusal of a script on the short way the words it has on the other.
func outside(err error) error {
	if refusal, ok := err.(*upstream.ReplyError); ok {
		return &upstream.ReplyError{Line: redisLine(refusal.Line)}
	}
	return err
}

// evalReplicated runs a script and waits on the same connection until replicas of the node have it.
// acked is how many did within the time; the script's own outcome is in err.
func (m *Manager) evalReplicated(ctx context.Context, c call, replicas int64, wait time.Duration) (reply rueidis.RedisMessage, acked int64, err error) {
	_, span := telemetry.Span(ctx, "script "+c.script.Name)
	defer span.End()
	if m.fleet != nil {
		return m.fleet.evalReplicated(ctx, c, replicas, wait)
	}
	reply, acked, err = replicatedOn(m.ctl, c, replicas, wait)
	m.account.refused(err)
	return reply, acked, err
}

func replicatedOn(ctl *upstream.Control, c call, replicas int64, wait time.Duration) (reply rueidis.RedisMessage, acked int64, err error) {
	client, err := ctl.Client(c.db)
	if err != nil {
		return reply, 0, &upstream.NotSentError{Cause: err}
	}
	verb, body := "EVALSHA", c.script.SHA
	for {
		// WAIT answers for the writes of its own connection: rueidis sends a batch that holds a blocking command on one of its own.
		replies := client.DoMulti(context.Background(), c.build(client, verb, body),
			client.B().Wait().Numreplicas(replicas).Timeout(max(1, wait.Milliseconds())).Build())
		reply, err = replies[0].ToMessage()
		if verb == "EVALSHA" && unknownScript(err) {
			verb, body = "EVAL", c.script.Source
			continue
		}
		if err != nil {
			return reply, 0, outcome(err)
		}
		// A lost WAIT is an unmet one: the script's outcome is known.
		acked, _ = replies[1].AsInt64()
		return reply, acked, nil
	}
}

func (c call) build(client rueidis.Client, verb, body string) rueidis.Completed {
	jitter.Turn(c.keys[0], c.args)
	return client.B().Arbitrary(verb, body, strconv.Itoa(len(c.keys))).Keys(c.keys[0]).Args(c.keys[1:]...).Args(c.args...).Build()
}

func unknownScript(err error) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && reply.IsNoScript()
}

// ints reads a reply that is an array of integers.
func ints(reply rueidis.RedisMessage, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	out, err := reply.AsIntSlice()
	if err != nil {
		return nil, &upstream.ReplyError{Line: "ERR unexpected reply of a lock script: " + err.Error()}
	}
	return out, nil
}
