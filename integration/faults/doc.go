// Package faults tests what happens when Redis, a client or the network fails, and that no client costs more than its share.
package faults
