package lock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/internal/lockstore/node"
	"github.com/lockproxy/lockproxy/upstream"
)

// leastTold is how long a LOCK waits at least for what is just being asked, however short its BLOCK is: after each start and each
// new connection that takes a moment.
const leastTold = time.Second

var errUntold = errors.New("it is not known yet what Redis can do")

// admit refuses locks at a node where the account is known to lack what they need. It waits for as long as the verb may until that
// is known.
func (d *direct) admit(ctx context.Context, r Request) (Request, error) {
	waiting, cancel := ctx, func() {}
	if r.Blocks && r.Block > 0 {
		waiting, cancel = context.WithTimeout(ctx, max(milliseconds(r.Block), leastTold))
	}
	defer cancel()
	refused, err := d.permitted(waiting, r.Key)
	if err != nil && ctx.Err() == nil {
		return r, &upstream.NotSentError{Cause: errUntold}
	}
	return r, cmp.Or(err, refused)
}

// refusalOf is why no lock is given at a node.
func refusalOf(n *node.Node) error {
	if lacks := n.Account.Lacks(); lacks != "" {
		return &Error{"NOPERM", "the service account lacks what locks need: " + lacks}
	}
	if cannot := n.Account.Cannot(); cannot != "" {
		return &upstream.ReplyError{Line: cannot + ", so no lock is given that could not be given back"}
	}
	return nil
}

// site is a node that is asked what it can do, by probing locks with a name that is at that node.
func (m *Manager) site(s node.Site, at func(name string) bool) node.Site {
	s.Probe = func(verb string) (cannot string, done bool, err error) {
		name := m.probeName(at)
		if name == "" {
			return "", false, nil
		}
		cannot, err = m.probe(s, name, verb)
		return cannot, true, err
	}
	return s
}

// permitted waits until it is known what the shard of a name can do.
func (f *sharded) permitted(ctx context.Context, name string) (refused, err error) {
	mb := f.use(cluster.Slot([]byte(name)), nil)
	if mb == nil {
		return nil, nil
	}
	defer f.unuse(mb)
	err = f.probed(ctx, mb)
	return refusalOf(&mb.Node), err
}

// probed waits until it is known what a shard can do.
func (f *sharded) probed(ctx context.Context, mb *shard) error {
	if mb.Account.Fresh() {
		return nil
	}
	return mb.Account.Ensure(ctx, f.site(mb))
}

func (f *sharded) site(mb *shard) node.Site {
	return f.m.site(node.Site{Node: &mb.Node, Log: f.m.log.With("node", mb.is.Addr), Run: f.background, PubSub: f.m.opts.ClusterPubSub},
		func(name string) bool { return f.on(mb, name) })
}

// verbOf is with what the scripts publish at a shard.
func (f *sharded) verbOf(mb *shard) string {
	_ = f.probed(context.Background(), mb) // no longer than one or two questions, and a script that was wanted is sent
	return cmp.Or(mb.Account.Verb(), f.m.opts.ClusterPubSub.Verb())
}
