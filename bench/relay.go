package main

import (
	"net"
	"sync"
)

// relayCommand makes this binary the byte relay instead of the measurement; it
// is a process of its own so that its CPU can be read.
const relayCommand = "relay"

// relay copies bytes between each client and a connection of its own to Redis:
// the least any Go proxy can do, and so what the others are held against. It
// returns when it cannot listen or accept.
func relay(listen, redis string) error {
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
		go relayOne(client, redis)
	}
}

func relayOne(client net.Conn, redis string) {
	defer client.Close()
	server, err := net.Dial("tcp", redis)
	if err != nil {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() { pour(client, server) })
	pour(server, client)
	back.Wait()
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
