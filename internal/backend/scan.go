package backend

import (
	"cmp"
	"context"
	"errors"
	"strconv"

	"github.com/lockproxy/lockproxy/cluster"
	"github.com/lockproxy/lockproxy/proto/resp"
	"github.com/lockproxy/lockproxy/upstream"
)

// Scan is one step of a SCAN for hashes, over all masters of a cluster one after the other.
type Scan struct {
	Cursor, Match string // Match "": all names
	Count         int64  // 0: usualCount; never more than mostCount
}

const usualCount, mostCount = 100, 1000

// scanFacts have a cluster's SCAN go from one master to the next.
var scanFacts = &cluster.Facts{Name: "scan", ReadOnly: true}

func (s Scan) words() [][]byte {
	count := strconv.FormatInt(min(cmp.Or(s.Count, usualCount), mostCount), 10)
	words := []string{"SCAN", s.Cursor, "COUNT", count, "TYPE", "hash", "MATCH", cmp.Or(s.Match, "*")}
	all := make([][]byte, len(words))
	for i, word := range words {
		all[i] = []byte(word)
	}
	return all
}

var errNoScan = errors.New("the reply to SCAN is none")

// scanned are the cursor for the next step, "0" at the end, and the keys in a reply to SCAN.
func scanned(reply []byte, err error) (next string, keys []string, _ error) {
	if err == nil {
		err = upstream.ErrorIn(reply)
	}
	said, _ := resp.ParseReply(reply)
	if err != nil || len(said.Elems) != 2 {
		return "", nil, cmp.Or(err, errNoScan)
	}
	for _, key := range said.Elems[1].Elems {
		keys = append(keys, string(key.Text))
	}
	return string(said.Elems[0].Text), keys, nil
}

// Scan makes a step as the client, whose right to it is Redis' to judge.
func (f *Forwarder) Scan(s Scan) (next string, keys []string, err error) {
	return scanned(f.Ask(s.words(), Destination{kind: scanning}))
}

// ScanAsService makes a step in a database as the service account.
func (c *Common) ScanAsService(ctx context.Context, b Backend, db int, s Scan) (next string, keys []string, err error) {
	return scanned(c.askWhole(ctx, b, db, s.words(), scanFacts))
}
