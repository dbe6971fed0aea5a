package main

import (
	"net"
	"sync"
)

// The floors: programs that do the least that any proxy in Go could do for the same guarantee, and nothing else. Each is a process of
// its own, so that its CPU can be read: bench <name> <listen> <redis>...
var floors = map[string]func(listen string, redis []string) error{"relay": relay, "least": least, "handoffs": leastHandoffs}

// accept serves each client. It returns when it cannot listen or accept.
func accept(listen string, serve func(client net.Conn)) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(client)
	}
}

// relay copies bytes between each client and a connection of its own to Redis.
func relay(listen string, redis []string) error {
	return accept(listen, func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", redis[0])
		if err != nil {
			return
		}
		defer server.Close()
		var back sync.WaitGroup
		back.Go(func() { pour(client, server) })
		pour(server, client)
		back.Wait()
	})
}

// pour copies until either end is gone and then closes both. A plain loop and
// not io.Copy, which would splice inside the kernel: a proxy sees the bytes.
func pour(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err == nil {
			_, err = to.Write(buf[:n])
		}
		if err != nil {
			to.Close()
			from.Close()
			return
		}
	}
}
