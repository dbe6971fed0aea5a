package cluster

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
)

// BenchmarkDo is what one client's pipelines of GETs cost, over three nodes.
func BenchmarkDo(b *testing.B) {
	tc := testredis.StartCluster(b, 3, 0)
	c := openCluster(b, tc, Options{})
	all := learn(b, c)
	for _, n := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cl := newClient(b, c, all, 2)
			cmds, plans := make([]Command, n), make([]*Plan, n)
			for i := range plans {
				cmds[i], plans[i] = all.command("GET", fmt.Sprint("key", i)), &Plan{}
			}
			b.ReportAllocs()
			for b.Loop() {
				for i, p := range plans {
					p.Set(cmds[i])
				}
				cl.e.Do(context.Background(), plans)
			}
		})
	}
}

// BenchmarkSplit makes the plan of an MGET whose keys are in as many slots.
func BenchmarkSplit(b *testing.B) {
	for _, keys := range []int{4, 100} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			cmd := Command{Args: [][]byte{[]byte("MGET")}, Facts: &Facts{Name: "mget", Request: MultiShard, ReadOnly: true}}
			for i := range keys {
				cmd.Args = append(cmd.Args, []byte("key:"+strconv.Itoa(i)))
				cmd.Keys = append(cmd.Keys, i+1)
			}
			var p Plan
			b.ReportAllocs()
			for b.Loop() {
				p.Set(cmd)
			}
		})
	}
}
