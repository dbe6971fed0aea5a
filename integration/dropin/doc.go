// Package dropin tests that ordinary commands through lockproxy, and the way a client comes in, are as they are at Redis itself.
package dropin
