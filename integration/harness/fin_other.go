//go:build !linux

package harness

import "net"

func finArrived(*net.TCPConn) bool { return true }
