package lock

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/internal/telemetry"
)

// eval runs a script: see node.Node.Eval. ctx carries the span, and what allowing and bounded say.
func (m *Manager) eval(ctx context.Context, c node.Call) (rueidis.RedisMessage, error) {
	_, span := telemetry.Span(ctx, "script "+c.Script.Name)
	defer span.End()
	if m.fleet != nil {
		return m.fleet.eval(ctx, c)
	}
	reply, err := m.one.Eval(c, false)
	m.account.refused(err)
	return reply, err
}

// evalInts is node.Node.EvalInts.
func (m *Manager) evalInts(ctx context.Context, c node.Call) ([]int64, error) {
	_, span := telemetry.Span(ctx, "script "+c.Script.Name)
	defer span.End()
	if m.fleet != nil {
		return m.fleet.evalInts(ctx, c)
	}
	out, err := m.one.EvalInts(c, false)
	m.account.refused(err)
	return out, err
}

// evalReplicated is node.Node.EvalReplicated.
func (m *Manager) evalReplicated(ctx context.Context, c node.Call, replicas int64, wait time.Duration) (reply rueidis.RedisMessage, acked int64, err error) {
	_, span := telemetry.Span(ctx, "script "+c.Script.Name)
	defer span.End()
	if m.fleet != nil {
		return m.fleet.evalReplicated(ctx, c, replicas, wait)
	}
	reply, acked, err = m.one.EvalReplicated(c, replicas, wait)
	m.account.refused(err)
	return reply, acked, err
}
