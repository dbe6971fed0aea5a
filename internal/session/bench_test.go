package session

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/testredis"
	"github.com/lockproxy/lockproxy/upstream"
)

// BenchmarkTransaction is MULTI, SET, GET, EXEC, so many at once, on a connection of the client's own.
func BenchmarkTransaction(b *testing.B) {
	server := testredis.Start(b)
	p := startProxy(b, server.URL(), nil)
	for _, pipe := range []int{1, 8} {
		b.Run(fmt.Sprint("P", pipe), func(b *testing.B) {
			c, err := net.Dial("tcp", p.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			sent := bytes.Repeat([]byte("*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nx\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n"), pipe)
			want := strings.Repeat("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\nx\r\n", pipe)
			got := make([]byte, len(want))
			b.ReportAllocs()
			for range b.N/pipe + 1 {
				if _, err := c.Write(sent); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
					b.Fatalf("%q, %v", got, err)
				}
			}
		})
	}
}

// BenchmarkGrants is what a lock verb of a user other than the service account takes of what all such verbs share.
func BenchmarkGrants(b *testing.B) {
	key := func(i int) grant {
		return grant{ident: upstream.Identity{User: "worker", Password: "secret"}, key: "orders:" + strconv.Itoa(i), write: true}
	}
	for i := range 1000 {
		grants().Add(key(i), nil)
	}
	b.RunParallel(func(p *testing.PB) {
		one := key(rand.IntN(1000))
		for p.Next() {
			grants().Get(one)
		}
	})
}
